package kubesocket

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-dev/sluice/pkg/cluster/policy"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload/evictorder"
)

// answerTime limits a request that is not a stream.
const answerTime = 5 * time.Second

// Client is sluice-kube's side of the socket.
type Client struct{ http *http.Client }

// NewClient returns a client of the plugin that serves that socket.
func NewClient(socket string) *Client {
	return &Client{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

// Orders calls do with each order, until the connection or the context ends. connected is called
// once the plugin has accepted the connection. Lines that are no order are passed to wrong.
func (c *Client) Orders(ctx context.Context, connected func(), do func(evictorder.Order), wrong func(error)) error {
	response, err := c.request(ctx, http.MethodGet, EvictionsPath, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // the body was only read
	connected()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, evictorder.MaxMessage)
	for lines.Scan() {
		order, err := evictorder.DecodeOrder(lines.Bytes())
		if err != nil {
			wrong(err)
			continue
		}
		do(order)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the stream of orders ended: %w", err)
	}
	return fmt.Errorf("the stream of orders ended: %w", io.EOF)
}

// Answer answers an order. An order that no longer waits for an answer is no error.
func (c *Client) Answer(ctx context.Context, id string, a evictorder.Answer) error {
	return c.send(ctx, http.MethodPost, EvictionsPath+"/"+id, a)
}

// SetPods tells the plugin what the API knows of the node's pods. It clips their owners, so that
// no author of a pod makes the list too long for the others.
func (c *Client) SetPods(ctx context.Context, pods []evictorder.Pod) error {
	pods = slices.Clone(pods)
	for i := range pods {
		pods[i].Owner = evictorder.ClipOwner(pods[i].Owner)
	}
	return c.send(ctx, http.MethodPut, PodsPath, pods)
}

// SetSwitch tells the plugin what the fleet's switch says for this node, or with a problem alone,
// why that is not known.
func (c *Client) SetSwitch(ctx context.Context, s status.Switch) error {
	return c.send(ctx, http.MethodPut, SwitchPath, s)
}

// SetParts hands the plugin the parts that the fleet's policy has for this node.
func (c *Client) SetParts(ctx context.Context, parts []policy.Part) error {
	if parts == nil {
		parts = []policy.Part{}
	}
	return c.send(ctx, http.MethodPut, PartsPath, parts)
}

// SetKubelet tells the plugin the kubelet's version.
func (c *Client) SetKubelet(ctx context.Context, version string) error {
	return c.send(ctx, http.MethodPut, KubeletPath, version)
}

func (c *Client) send(ctx context.Context, method, path string, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	response, err := c.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// request sends a request, and returns an error unless the answer is 200, or 404 to a POST.
func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://sluice"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK || method == http.MethodPost && response.StatusCode == http.StatusNotFound {
		return response, nil
	}
	defer response.Body.Close() //nolint:errcheck // the body was only read
	const enough = 4 << 10
	text, err := io.ReadAll(io.LimitReader(response.Body, enough))
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("the plugin answers %s: %s", response.Status, bytes.TrimSpace(text))
}
