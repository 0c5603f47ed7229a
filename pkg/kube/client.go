// Package kube is what talks to the Kubernetes API server: it follows a node and its pods, and
// publishes what the node sells. It is the only package that uses client-go, which costs
// memory: the plugin must not import it.
package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Manager is the field manager of what is published.
const Manager = "sluice-kube"

// requestTime limits a request that is not a watch.
const requestTime = 10 * time.Second

// Client talks to the API server about one node.
type Client struct {
	rest   rest.Interface
	config *rest.Config // for other groups of the API
	node   string
}

// NewClient returns a client for a node. A kubeconfig of "" means that this is a pod, which has
// a token and the address of the API server.
func NewClient(kubeconfig, node, version string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the API server's address and the credential: %w (in a pod, mount a token of its service account; elsewhere use --kubeconfig)", err)
	}
	config.UserAgent = Manager + "/" + version
	client, err := newCoreREST(config)
	if err != nil {
		return nil, err
	}
	return &Client{rest: client, config: config, node: node}, nil
}

// newCoreREST returns a client of the core API.
func newCoreREST(config *rest.Config) (rest.Interface, error) {
	return newREST(config, "/api", corev1.SchemeGroupVersion, corev1.AddToScheme)
}

// newREST returns a client of a group of the API.
func newREST(config *rest.Config, path string, group schema.GroupVersion, types func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := types(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = path, &group
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if config.QPS == 0 {
		config.QPS, config.Burst = 20, 40
	}
	return rest.RESTClientFor(config)
}

// apply lets the node's status have what the manifest says of Sluice's fields, and nothing
// else of them: a server-side apply, which owns each field beside those of the kubelet. force
// takes fields from other owners.
func (c *Client) apply(ctx context.Context, status *applied, force bool) (*corev1.Node, error) {
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	request := c.rest.Patch(types.ApplyPatchType).Resource("nodes").Name(status.Metadata.Name).SubResource("status").Param("fieldManager", Manager)
	if force {
		request.Param("force", "true")
	}
	var node corev1.Node
	return &node, request.Body(body).Do(ctx).Into(&node)
}

// applied is the manifest of a server-side apply.
type applied struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Metadata   appliedName   `json:"metadata"`
	Status     appliedStatus `json:"status,omitzero"`
}

type appliedName struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid,omitempty"` // the node that was meant, not one made anew
	Annotations map[string]string `json:"annotations,omitempty"`
}

type appliedStatus struct {
	Capacity    map[string]string      `json:"capacity,omitempty"`
	Allocatable map[string]string      `json:"allocatable,omitempty"`
	Conditions  []corev1.NodeCondition `json:"conditions,omitempty"`
}

func newApplied(name, uid string) *applied {
	return &applied{APIVersion: "v1", Kind: "Node", Metadata: appliedName{Name: name, UID: uid}}
}

// Withdraw removes all that Sluice has published on a node: its resources, its conditions, its report and its
// NodeResourceTopology. Running pods with these resources stay: the kubelet does not check what the node lacks.
func (c *Client) Withdraw(ctx context.Context, node string) error {
	_, err := c.apply(ctx, newApplied(node, ""), false)
	return errors.Join(err, c.WithdrawTopology(ctx, node))
}

// These are how nodes are listed: in pages, and without what is not needed of a node, of which the
// status alone may have 100 KB.
const (
	nodesPage    = 100
	metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// Nodes lists the names of all nodes.
func (c *Client) Nodes(ctx context.Context) ([]string, error) {
	var names []string
	err := eachPage(func(after string) (string, error) {
		page, err := c.nodesAfter(ctx, after)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			names = append(names, page.Items[i].Name)
		}
		return page.Continue, nil
	})
	return names, err
}

// nodesAfter returns one page of the nodes; "" is before the first.
func (c *Client) nodesAfter(ctx context.Context, next string) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	request := c.rest.Get().Resource("nodes").Param("limit", strconv.Itoa(nodesPage)).SetHeader("Accept", metadataOnly)
	if next != "" {
		request.Param("continue", next)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // it has what the API server says, which the error of Raw lacks
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var page metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, fmt.Errorf("the API server's list of nodes is not the JSON that was asked for: %w", err)
	}
	return &page, nil
}
