package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Admin is the configuration of a client that may do everything.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// User is the configuration of a client that is the user, in the groups and in
// system:authenticated. RBAC grants it nothing unless the test does.
func (c *Cluster) User(t testing.TB, name string, groups ...string) *rest.Config {
	t.Helper()
	config, err := c.user(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (c *Cluster) user(name string, groups ...string) (*rest.Config, error) {
	id, err := c.authority.user(name, groups...)
	return &rest.Config{
		Host:            c.url,
		QPS:             -1, // no limit: what is slow in a test must be slow by itself
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem, CertData: id.cert, KeyData: id.key},
	}, err
}

// PodToken is the configuration of a client with the token that the pod's service account
// has in the pod: it is bound to the pod and, if the pod is bound, to its node, as a
// projected token is. The node's object must exist for the token to have its uid.
func (c *Cluster) PodToken(t testing.TB, pod *corev1.Pod) *rest.Config {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	issued, err := c.Client(t).CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("a token for service account %s/%s: %v", pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	return &rest.Config{Host: c.url, QPS: -1, BearerToken: issued.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem}}
}

// Client is a client that may do everything.
func (c *Cluster) Client(t testing.TB) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Kubeconfig writes the configuration to a file for a program, and returns its path.
func (c *Cluster) Kubeconfig(t testing.TB, name string, config *rest.Config) string {
	t.Helper()
	file, err := c.kubeconfig(name, config)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func (c *Cluster) kubeconfig(name string, config *rest.Config) (string, error) {
	file := c.path(name + ".kubeconfig")
	return file, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"bed": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bed": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"bed": {Cluster: "bed", AuthInfo: "bed"}},
		CurrentContext: "bed",
	}, file)
}

// Namespace makes a namespace with the labels, in which pods can be created at once: where
// no controller manager runs, it makes the namespace's service account.
func (c *Cluster) Namespace(t testing.TB, name string, labels map[string]string) {
	t.Helper()
	client := c.Client(t)
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err == nil {
		err = createServiceAccount(t.Context(), client, name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func createServiceAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}}
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Apply applies the YAML documents with server-side apply, as `kubectl apply --server-side`
// does, in their order, and returns the objects as the API server has them.
func (c *Cluster) Apply(t testing.TB, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var applied []*unstructured.Unstructured
	c.each(t, manifests, func(resource dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		got, err := resource.Apply(t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "bed", Force: true})
		applied = append(applied, got)
		return err
	})
	return applied
}

// Delete deletes the objects of the YAML documents, with what they own, as `kubectl delete`
// does. It doesn't wait until they are gone.
func (c *Cluster) Delete(t testing.TB, manifests string) {
	t.Helper()
	background := metav1.DeletePropagationBackground
	c.each(t, manifests, func(resource dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		err := resource.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
		if apierrors.IsNotFound(err) { // with its namespace
			return nil
		}
		return err
	})
}

// each calls do for the object of each YAML document, with the resource that it is one of.
func (c *Cluster) each(t testing.TB, manifests string, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) {
	t.Helper()
	objects, err := Objects(manifests)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	served, err := discovery.NewDiscoveryClientForConfig(c.admin)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(served)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			t.Fatal(err)
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := object.GetNamespace()
			if namespace == "" {
				namespace = "default"
			}
			resource = client.Resource(mapping.Resource).Namespace(namespace)
		}
		if err := do(resource, object); err != nil {
			t.Fatalf("%s %s: %v", kind.Kind, object.GetName(), err)
		}
	}
}

// Objects parses YAML or JSON documents.
func Objects(manifests string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(objects)+1, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
