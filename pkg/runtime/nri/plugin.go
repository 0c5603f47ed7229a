// Package nri connects the agent to the container runtime. It registers with NRI, converts the
// runtime's events for the agent and the agent's answers into adjustments and updates, and
// reconnects when the runtime restarts.
package nri

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"

	"github.com/sluice-dev/sluice/pkg/engine/agent"
	"github.com/sluice-dev/sluice/pkg/status"
)

// Options configure the connection to the runtime.
type Options struct {
	Socket     string // NRI socket; "" for the default
	Index      string // two digits; the runtime calls plugins in the order of their indexes
	Name       string
	FailClosed bool // a container does not start if the plugin doesn't answer
	// Configure creates the agent of a plugin that the runtime launched, from the configuration
	// that the runtime passes on, and sets the options that the configuration contains. If it
	// returns an error, the plugin doesn't register.
	Configure func(text string, o *Options) (*agent.Agent, error)
	Log       logrus.FieldLogger
}

// Check returns an error for an index or a name that every runtime would refuse.
func (o *Options) Check() error {
	return errors.Join(api.CheckPluginIndex(o.Index), api.CheckPluginName(o.Name))
}

// Plugin is one NRI plugin, connected or not.
type Plugin struct {
	Options
	agent  *agent.Agent
	policy api.FailurePolicy // sent with the answer to Configure
}

// session is the plugin on one connection. Requests of an old session may still be in progress
// when the next connection exists.
type session struct {
	*Plugin
	stub stub.Stub

	configuring sync.Mutex
	ended       bool
}

// end waits for a request that is configuring the plugin, and refuses later ones.
func (s *session) end() {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	s.ended = true
	if s.agent != nil {
		s.agent.Disconnected()
	}
}

// leave lets the agent end what it does through the runtime, while the connection still exists.
func (s *session) leave() {
	s.configuring.Lock()
	a := s.agent
	s.configuring.Unlock()
	if a != nil {
		a.Leave()
	}
}

// New creates the plugin of an agent, which is nil if Configure is to create it.
func New(a *agent.Agent, o Options) *Plugin { return &Plugin{Options: o, agent: a} }

// PreInstalled reports whether the runtime has launched this process: the connection is then a
// file descriptor that this process inherited, and there can be no other.
func PreInstalled() bool { return os.Getenv(api.PluginSocketEnvVar) != "" }

// Run connects and serves until the context ends, and reconnects whenever the connection ends.
// There is never more than one connection: NRI would treat two as plugins that conflict in
// every field.
func (p *Plugin) Run(ctx context.Context) error {
	const first, most = 100 * time.Millisecond, 10 * time.Second
	wait := first
	for {
		began := time.Now()
		err := p.serve(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the context has ended
		}
		if PreInstalled() {
			return err
		}
		if time.Since(began) > most {
			wait = first
		}
		jittered := wait/2 + rand.N(wait)
		p.Log.WithError(err).WithField("retry", jittered.Round(time.Millisecond)).Warn("No connection to the runtime's NRI socket")
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(jittered):
		}
		wait = min(2*wait, most)
	}
}

// serve serves one connection, from registration to its end.
func (p *Plugin) serve(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // closing the connection loses no data
	options := []stub.Option{
		stub.WithLogger(stubLog{p.Log}), stub.WithConnection(conn), stub.WithOnClose(conn.end),
		stub.WithFailurePolicy(&p.policy),
	}
	if !PreInstalled() { // otherwise the runtime has set the name and the index
		options = append(options, stub.WithPluginIdx(p.Index), stub.WithPluginName(p.Name))
	}
	session := &session{Plugin: p}
	s, err := stub.New(session, options...)
	if err != nil {
		return err
	}
	session.stub = s
	defer session.end()
	// Start never returns, and holds the stub's lock, if the runtime ends the connection
	// between registration and configuration (nri v0.12.5, stub.go).
	started := make(chan error, 1)
	// The runtime's requests have this context, and are answered until the connection ends.
	go func() { started <- s.Start(context.WithoutCancel(ctx)) }()
	select {
	case err := <-started:
		if err != nil {
			return err
		}
	case <-conn.gone:
		return errGone
	case <-ctx.Done():
		return nil
	}
	defer s.Stop()
	select {
	case <-conn.gone:
		return errGone
	case <-ctx.Done():
		session.leave()
		return nil
	}
}

var errGone = errors.New("the runtime closed the connection")

// Configure subscribes to the events that the runtime's version supports.
func (s *session) Configure(_ context.Context, text, runtime, version string) (api.EventMask, error) {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	if s.ended {
		return 0, errGone
	}
	if s.Options.Configure != nil {
		a, err := s.Options.Configure(text, &s.Options)
		if err != nil {
			return 0, fmt.Errorf("sluice: %w", err)
		}
		s.agent = a
	}
	nriVersion := s.stub.RuntimeNRIVersion()
	s.policy.FailRequest = s.FailClosed
	if s.FailClosed && !failsClosed(nriVersion) {
		s.Log.Warnf("failurePolicy: closed has no effect: the runtime's NRI %s goes on without a plugin, 0.12.5 is the first that need not. Require the plugin in the runtime's NRI validator instead (containerd: required_plugins; CRI-O from 1.34 on: nri_validator_required_plugins)", known(nriVersion))
	}
	s.agent.Connected(updater{s.stub}, status.Runtime{Name: runtime, Version: version, NRIVersion: nriVersion}, updatesUnsafe(nriVersion))
	return events(nriVersion), nil
}

// stubLog passes the stub's messages to our logger, one level lower because they are many.
type stubLog struct{ logrus.FieldLogger }

var _ nrilog.Logger = stubLog{}

func (l stubLog) Debugf(_ context.Context, format string, args ...any) {
	l.FieldLogger.Debugf(format, args...)
}

func (l stubLog) Infof(_ context.Context, format string, args ...any) {
	l.FieldLogger.Debugf(format, args...)
}

func (l stubLog) Warnf(_ context.Context, format string, args ...any) {
	l.FieldLogger.Warnf(format, args...)
}

func (l stubLog) Errorf(_ context.Context, format string, args ...any) {
	l.FieldLogger.Errorf(format, args...)
}
