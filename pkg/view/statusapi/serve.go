// Package statusapi serves the status over a unix socket: whole, as a stream of changes,
// with answers to what a pod or another configuration would get. Client asks it.
package statusapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
)

// Reader is what a status is read from. Nobody changes a status that it has given:
// several readers may have the same one.
type Reader interface {
	Status() (*status.Status, error)
	Machine() (*topology.Machine, error)
}

// Source is what the socket serves; the agent is one.
type Source interface {
	Reader
	WhatIf(pod *workload.Pod, containers []workload.Container) ([]status.Answer, error)
}

// PlanRequest asks what a pod's containers would get.
type PlanRequest struct {
	Pod        *workload.Pod        `json:"pod"`
	Containers []workload.Container `json:"containers"`
}

// The bounds of what a client may send, and of the time that it takes.
const (
	maxBody   = 2 << 20 // a pod object in etcd is at most 1.5 MiB
	maxHeader = 16 << 10
	readTime  = 5 * time.Second
	writeTime = 10 * time.Second
	idleTime  = time.Minute
)

// Route is something else that the socket serves.
type Route struct {
	Pattern string // of http.ServeMux: "GET /metrics"
	Handler http.Handler
}

// Serve answers on a unix socket, open to its owner alone, until the context
// ends. A socket left over from an earlier run is replaced. Whoever connects must be
// root or the user of this process, however open the socket has been made since; a
// source that is a Refuser hears of all others.
func Serve(ctx context.Context, socket string, source Source, more ...Route) error {
	listener, err := Listen(socket)
	if err != nil {
		return fmt.Errorf("status socket: %w", err)
	}
	server := &http.Server{
		Handler: admit(http.MaxBytesHandler(handler(source, more...), maxBody), source), ConnContext: withPeer,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
	}
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

// Data answers GET /v1/status, /v1/stream and /v1/topology.
func Data(source Reader) *http.ServeMux {
	mux := http.NewServeMux()
	var last encoded
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		s, err := source.Status()
		if err != nil {
			answer(w, nil, err)
			return
		}
		data, err := last.of(s)
		send(w, data, err)
	})
	mux.Handle("GET /v1/stream", newHub(source))
	mux.HandleFunc("GET /v1/topology", func(w http.ResponseWriter, _ *http.Request) {
		m, err := source.Machine()
		answer(w, m, err)
	})
	return mux
}

func handler(source Source, more ...Route) http.Handler {
	mux := Data(source)
	for _, r := range more {
		mux.Handle(r.Pattern, r.Handler)
	}
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		var request PlanRequest
		err := json.NewDecoder(r.Body).Decode(&request)
		if err != nil || request.Pod == nil {
			http.Error(w, "a plan request is a JSON object with pod and containers", http.StatusBadRequest)
			return
		}
		answers, err := source.WhatIf(request.Pod, request.Containers)
		answer(w, answers, err)
	})
	return mux
}

// encoded is the last status as JSON, for readers who are given the same one.
type encoded struct {
	mu     sync.Mutex
	status *status.Status
	data   []byte
}

func (e *encoded) of(s *status.Status) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s != e.status {
		data, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		e.status, e.data = s, append(data, '\n')
	}
	return e.data, nil
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	data, err := json.Marshal(value)
	send(w, append(data, '\n'), err)
}

func send(w http.ResponseWriter, data []byte, err error) {
	if err != nil {
		http.Error(w, "a bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(data) //nolint:errcheck // the client has gone
}
