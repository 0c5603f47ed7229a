package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Source is what the socket serves; the agent is one.
type Source interface {
	Status() (*Status, error)
	Machine() (*topology.Machine, error)
	WhatIf(pod *workload.Pod, containers []workload.Container) ([]Answer, error)
}

// DefaultSocket is where a plugin serves its status unless told otherwise.
const DefaultSocket = "/run/sluice/status.sock"

// PlanRequest asks what a pod's containers would get.
type PlanRequest struct {
	Pod        *workload.Pod        `json:"pod"`
	Containers []workload.Container `json:"containers"`
}

// maxPlan bounds a plan request: a pod object in etcd is at most 1.5 MiB.
const maxPlan = 2 << 20

// Route is something else that the socket serves.
type Route struct {
	Pattern string // of http.ServeMux: "GET /metrics"
	Handler http.Handler
}

// Serve answers on a unix socket, open to its owner alone, until the context
// ends. A socket left over from an earlier run is replaced.
func Serve(ctx context.Context, socket string, source Source, more ...Route) error {
	listener, err := Listen(socket)
	if err != nil {
		return fmt.Errorf("status socket: %w", err)
	}
	server := &http.Server{Handler: handler(source, more...), ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() {
		server.Close() //nolint:errcheck // the process ends
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("status socket: %w", err)
	}
	return os.Remove(socket)
}

// Listen makes a unix socket that is open to its owner alone, in the place of an older
// one. It makes it in a folder of its own and then moves it to its place: nobody can
// connect before its mode is set, however open the place is.
func Listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(filepath.Dir(socket), ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private) //nolint:errcheck // an empty folder may stay
	hidden := filepath.Join(private, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, 0o600), os.Rename(hidden, socket)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

func handler(source Source, more ...Route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range more {
		mux.Handle(r.Pattern, r.Handler)
	}
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		s, err := source.Status()
		answer(w, s, err)
	})
	mux.HandleFunc("GET /v1/topology", func(w http.ResponseWriter, _ *http.Request) {
		m, err := source.Machine()
		answer(w, m, err)
	})
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		var request PlanRequest
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxPlan)).Decode(&request)
		if err != nil || request.Pod == nil {
			http.Error(w, "a plan request is a JSON object with pod and containers", http.StatusBadRequest)
			return
		}
		answers, err := source.WhatIf(request.Pod, request.Containers)
		answer(w, answers, err)
	})
	return mux
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "a bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(data, '\n')) //nolint:errcheck // the client has gone
}

// Client asks a running plugin.
type Client struct {
	socket string
	http   http.Client
}

// NewClient asks the plugin behind that socket.
func NewClient(socket string) *Client {
	return &Client{socket: socket, http: http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}}
}

// Status is the plugin's state.
func (c *Client) Status() (*Status, error) { return c.StatusIn(context.Background()) }

// StatusIn is the plugin's state, if it answers before the context ends.
func (c *Client) StatusIn(ctx context.Context) (*Status, error) {
	var s Status
	return &s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Machine is the machine as the plugin works with it.
func (c *Client) Machine(ctx context.Context) (*topology.Machine, error) {
	var m topology.Machine
	return &m, c.do(ctx, http.MethodGet, "/v1/topology", nil, &m)
}

// WhatIf asks what a pod's containers would get.
func (c *Client) WhatIf(pod *workload.Pod, containers []workload.Container) ([]Answer, error) {
	body, err := json.Marshal(PlanRequest{Pod: pod, Containers: containers})
	if err != nil {
		return nil, err
	}
	var answers []Answer
	err = c.do(context.Background(), http.MethodPost, "/v1/plan", body, &answers)
	return answers, err
}

func (c *Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://sluice"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if transport := (*url.Error)(nil); errors.As(err, &transport) {
			err = transport.Err // without the made-up address
		}
		return fmt.Errorf("no answer on %s (is sluice running, and are you root?): %w", c.socket, err)
	}
	defer response.Body.Close() //nolint:errcheck // read to its end below
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the plugin answers: %s", bytes.TrimSpace(data))
	}
	return json.Unmarshal(data, into)
}
