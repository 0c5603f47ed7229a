package live

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/status/statustest"
	"github.com/sluice-dev/sluice/pkg/view/statusapi"
	"github.com/sluice-dev/sluice/pkg/view/top"
	"github.com/sluice-dev/sluice/pkg/workload"
	"github.com/sluice-dev/sluice/topology"
	"github.com/sluice-dev/sluice/topology/synth"
)

// press sends keys to the view.
func press(m watching, keys ...string) watching {
	for _, key := range keys {
		next, _ := m.key(key)
		m = next.(watching)
	}
	return m
}

func TestTopKeys(t *testing.T) {
	t.Parallel()
	m := watching{show: top.Options{Width: 80, Height: 24}}
	s := statustest.Looped()
	for range 100 {
		s.Containers = append(s.Containers, s.Containers...)[:min(100, 2*len(s.Containers))]
	}
	m.state.Status = s
	last := top.Last(m.state, m.show)
	for keys, want := range map[string]top.Options{
		"":                   {},
		"down j down k up":   {First: 1},
		"up up pgup":         {},
		"pgdown pgdown pgup": {First: 10},
		"end pgdown":         {First: last},
		"end up":             {First: last - 1},
		"end home":           {},
		"end m":              {Sort: top.ByMemory},
		"t":                  {Sort: top.ByThrottled},
		"t c":                {Sort: top.ByCPU},
		"p":                  {Paused: true},
		"p space":            {},
		"? down":             {Help: true},
		"? ?":                {},
		"x":                  {},
	} {
		want.Width, want.Height = 80, 24
		if got := press(m, strings.Fields(keys)...).show; got != want {
			t.Errorf("%s: %+v, want %+v", keys, got, want)
		}
	}
	for _, key := range []string{"q", "esc", "ctrl+c"} {
		if _, cmd := m.key(key); cmd == nil || cmd() != tea.Quit() {
			t.Errorf("%s does not quit", key)
		}
	}
}

// When the plugin stops answering, the view says so and still shows the last status. When it
// answers again, the view shows the new one.
func TestTopFindsThePluginAgain(t *testing.T) {
	t.Parallel()
	m := watching{interval: time.Second, read: func() tea.Msg { return nil }}
	step := func(msg tea.Msg) (string, tea.Cmd) {
		next, cmd := m.Update(msg)
		m = next.(watching)
		return m.View().Content, cmd
	}
	if text, _ := step(nil); text != "" {
		t.Errorf("before its size is known: %s", text)
	}
	step(tea.WindowSizeMsg{Width: 80, Height: 24})
	if text, cmd := step(reading{err: errors.New("no answer")}); !strings.Contains(text, "waiting") || !strings.Contains(text, "no answer") || cmd == nil {
		t.Errorf("%v\n%s", cmd, text)
	}
	here, _ := step(reading{state: top.State{Status: statustest.Looped()}})
	if !strings.Contains(here, "data/db-0/proxy") || strings.Contains(here, "NOT ANSWERING") {
		t.Error(here)
	}
	if text, _ := step(reading{err: errors.New("no answer")}); !strings.Contains(text, "NOT ANSWERING: no answer") || !strings.Contains(text, "is of 12:00:00") || !strings.Contains(text, "data/db-0/proxy") {
		t.Error(text)
	}
	if text, _ := step(reading{state: top.State{Status: statustest.Looped()}}); text != here {
		t.Error(text)
	}
	// After a pause, the view shows the present status and none of the missed ones.
	m = press(m, "p")
	paused := m.View().Content
	if text, cmd := step(reading{state: top.State{Status: statustest.Calm()}}); text != paused || cmd == nil {
		t.Error(text)
	}
	if _, cmd := step(due{}); cmd == nil {
		t.Error("a pause ends the looking")
	}
	m = press(m, "p")
	if text, _ := step(reading{state: top.State{Status: statustest.Calm()}}); strings.Contains(text, "BATCH") {
		t.Error(text)
	}
}

// screen is a terminal that stores what it receives.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// moving is a node on which the load of every CPU changes with each reading.
type moving struct {
	asked chan int // receives the number of readings
	n     int
}

func (m *moving) Read(ctx context.Context) (top.State, error) {
	s := statustest.Looped()
	m.n++
	s.Time = s.Time.Add(time.Duration(m.n) * time.Second)
	s.Loop.Node.CPU.Usage += workload.MilliCPU(100 * m.n)
	for cpu := range s.Machine.Online.Size() {
		s.Loop.Node.CPULoadPercent = append(s.Loop.Node.CPULoadPercent, float64((cpu*m.n*37)%101))
	}
	select {
	case m.asked <- m.n:
	case <-ctx.Done():
	}
	return top.State{Status: s}, nil
}

// watched runs the view on a made-up terminal for that many readings, and returns all bytes that
// were sent to it.
func watched(t *testing.T, looks int, show top.Options, env ...string) string {
	t.Helper()
	keys, typed := io.Pipe()
	out, from := &screen{}, &moving{asked: make(chan int)}
	ended := make(chan error)
	go func() {
		ended <- Watch(t.Context(), from, 150*time.Millisecond, show, tea.WithInput(keys), tea.WithOutput(out),
			tea.WithWindowSize(80, 24), tea.WithEnvironment(env), tea.WithoutSignalHandler())
	}()
	for n := range from.asked {
		if n > looks {
			break
		}
	}
	typed.Write([]byte("q"))
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return out.String()
		case <-from.asked:
		}
	}
}

// On a slow line, only changes are sent.
func TestTopSendsWhatChanged(t *testing.T) {
	t.Parallel()
	one, many := watched(t, 1, top.Options{Colour: true}, "TERM=xterm-256color"), watched(t, 6, top.Options{Colour: true}, "TERM=xterm-256color")
	if !strings.Contains(one, "data/db-0") || !strings.Contains(one, "\x1b[?1049h") || !strings.Contains(one, "\x1b[?1049l") {
		t.Errorf("%q", one)
	}
	each := (len(many) - len(one)) / 5
	t.Logf("first %d bytes, each after it %d", len(one), each)
	if each*4 > len(one) {
		t.Errorf("each look sends %d bytes, all that is sent with the first is %d", each, len(one))
	}
}

// There are no colours if NO_COLOR forbids them or the terminal has none.
func TestTopWithoutColour(t *testing.T) {
	t.Parallel()
	colour := regexp.MustCompile(`\x1b\[[0-9;]*3[0-9][0-9;]*m`)
	forced := []string{"TERM=xterm-256color", "CLICOLOR_FORCE=1"} // because the test's output is no terminal
	for _, text := range []string{watched(t, 1, top.Options{}, forced...), watched(t, 1, top.Options{Colour: true}, "TERM=vt100")} {
		if colour.MatchString(text) || !strings.Contains(text, "data/db-0") {
			t.Errorf("%q", text)
		}
	}
	if text := watched(t, 1, top.Options{Colour: true}, forced...); !colour.MatchString(text) {
		t.Errorf("no colour at all: %q", text)
	}
}

// node is a plugin whose CPUs can change.
type node struct {
	status  *status.Status
	machine *topology.Machine
}

func (n *node) Status() (*status.Status, error) { return n.status, nil }

func (n *node) Machine() (*topology.Machine, error) { return n.machine, nil }

func (*node) WhatIf(*workload.Pod, []workload.Container) ([]status.Answer, error) { return nil, nil }

// When other CPUs are online, the view requests the machine again.
func TestTopFollowsHotplug(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "live") // the path of a socket is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	machine, err := synth.Machine("2 nodes 8 cores 2 threads")
	if err != nil {
		t.Fatal(err)
	}
	s := statustest.Looped()
	n := &node{status: s, machine: machine}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- statusapi.Serve(ctx, filepath.Join(dir, "s"), n) }()
	defer func() { stop(); <-ended }()
	from := FromSocket(filepath.Join(dir, "s"))
	first, err := Read(t.Context(), from)
	for ; err != nil && t.Context().Err() == nil; first, err = Read(t.Context(), from) {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	if first.Machine == nil || first.Machine.Online != s.Machine.Online {
		t.Fatalf("%v: %+v", err, first)
	}
	again, err := Read(t.Context(), from)
	if err != nil || again.Machine != first.Machine {
		t.Errorf("%v: the machine is asked for each time", err)
	}
	fewer := *s
	fewer.Machine.Online.Remove(31)
	n.status = &fewer
	if changed, err := Read(t.Context(), from); err != nil || changed.Machine == first.Machine {
		t.Errorf("%v: the machine is not asked for again", err)
	}
}
