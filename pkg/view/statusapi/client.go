package statusapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Client sends requests to a running plugin.
type Client struct {
	socket string
	http   *http.Client
}

// answerTime limits the time that a client waits for an answer.
const answerTime = 10 * time.Second

// NewClient returns a client of the plugin that listens on that socket.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}}
}

// Status returns the plugin's state.
func (c *Client) Status() (*status.Status, error) { return c.StatusIn(context.Background()) }

// StatusIn returns the plugin's state if it answers before the context ends.
func (c *Client) StatusIn(ctx context.Context) (*status.Status, error) {
	var s status.Status
	return &s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Machine returns the machine as the plugin sees it.
func (c *Client) Machine(ctx context.Context) (*topology.Machine, error) {
	var m topology.Machine
	return &m, c.do(ctx, http.MethodGet, "/v1/topology", nil, &m)
}

// WhatIf returns what a pod's containers would get.
func (c *Client) WhatIf(pod *workload.Pod, containers []workload.Container) ([]status.Answer, error) {
	body, err := json.Marshal(PlanRequest{Pod: pod, Containers: containers})
	if err != nil {
		return nil, err
	}
	var answers []status.Answer
	err = c.do(context.Background(), http.MethodPost, "/v1/plan", body, &answers)
	return answers, err
}

// Stream calls do with the plugin's state, now and then once per interval (at least 100 ms),
// until the context ends, the connection ends or do fails. It skips intervals in which do has
// not returned. A status that do has received never changes.
func (c *Client) Stream(ctx context.Context, every time.Duration, do func(*status.Status) error) error {
	body, err := c.open(ctx, http.MethodGet, "/v1/stream?interval="+url.QueryEscape(every.String()), nil)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // the body was only read
	lines := json.NewDecoder(body)
	fields, current := newFields(), &status.Status{}
	for {
		var patch json.RawMessage
		if err := lines.Decode(&patch); err != nil {
			return fmt.Errorf("the stream of %s ended: %w", c.socket, cmp.Or(ctx.Err(), err))
		}
		if current, err = fields.merge(current, patch); err != nil {
			return fmt.Errorf("the stream of %s: %w", c.socket, err)
		}
		if err := do(current); err != nil {
			return err
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close() //nolint:errcheck // the body is read to its end below
	data, err := io.ReadAll(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// open sends a request and returns the body of its answer.
func (c *Client) open(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://sluice"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if transport, ok := errors.AsType[*url.Error](err); ok {
			err = transport.Err // omits the placeholder address
		}
		return nil, fmt.Errorf("no answer on %s (is sluice running, and are you root?): %w", c.socket, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close() //nolint:errcheck // the body was only read
	const enough = 64 << 10
	text, err := io.ReadAll(io.LimitReader(response.Body, enough))
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("the plugin answers: %s", bytes.TrimSpace(text))
}
