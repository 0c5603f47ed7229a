// Package live shows frames of pkg/view/top on a terminal until it is told to end: it requests
// the status from the plugin, reads keys and redraws what has changed.
package live

import (
	"context"
	"errors"
	"math"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-dev/sluice/pkg/view/top"
)

// framesPerSecond limits the delay until a key has an effect; the status is read once a second.
const framesPerSecond = 10

// Watch shows frames on the terminal until the user quits or interrupts it, or the context
// ends. Bubble Tea sends only the changes of a frame, without colours that the terminal doesn't
// support.
func Watch(ctx context.Context, from Source, interval time.Duration, show top.Options, options ...tea.ProgramOption) error {
	show.Live = true
	m := watching{interval: interval, show: show, read: func() tea.Msg {
		state, err := Read(ctx, from)
		return reading{state, err}
	}}
	options = append([]tea.ProgramOption{tea.WithContext(ctx), tea.WithFPS(framesPerSecond)}, options...)
	_, err := tea.NewProgram(m, options...).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil //nolint:nilerr // the caller has ended it
	}
	return err
}

// watching is the state of the view between two messages.
type watching struct {
	read     tea.Cmd // command that reads the status and returns looked
	interval time.Duration
	state    top.State
	show     top.Options
}

// reading is the result of reading the status.
type reading struct {
	state top.State
	err   error
}

// due says that it is time to read the status again.
type due struct{}

// Init reads the status at once.
func (m watching) Init() tea.Cmd { return m.read }

// Update handles a message. The next reading starts only after the previous one has ended, so a
// slow plugin gets no further requests.
func (m watching) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.show.Width, m.show.Height = msg.Width, msg.Height
	case reading:
		if !m.show.Paused {
			m.take(msg)
		}
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return due{} })
	case due:
		if m.show.Paused {
			return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return due{} })
		}
		return m, m.read
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

// take stores a result; without an answer it keeps the previous status.
func (m *watching) take(l reading) {
	m.show.Problem = ""
	if l.err != nil {
		m.show.Problem = l.err.Error()
		return
	}
	m.state = l.state
}

// farScroll is the number of containers that a page key scrolls.
const farScroll = 10

func (m watching) key(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "ctrl+c", "esc":
		return m, tea.Quit
	case "p", "space":
		m.show.Paused = !m.show.Paused
	case "?", "h":
		m.show.Help = !m.show.Help
	case "c":
		m.show.Sort, m.show.First = top.ByCPU, 0
	case "t":
		m.show.Sort, m.show.First = top.ByThrottled, 0
	case "m":
		m.show.Sort, m.show.First = top.ByMemory, 0
	case "up", "k":
		m.scroll(m.show.First - 1)
	case "down", "j":
		m.scroll(m.show.First + 1)
	case "pgup":
		m.scroll(m.show.First - farScroll)
	case "pgdown":
		m.scroll(m.show.First + farScroll)
	case "home":
		m.scroll(0)
	case "end":
		m.scroll(math.MaxInt)
	}
	return m, nil
}

// scroll moves another container to the top.
func (m *watching) scroll(first int) {
	if !m.show.Help {
		m.show.First = max(0, min(first, top.Last(m.state, m.show)))
	}
}

// View draws the frame.
func (m watching) View() tea.View {
	v := tea.NewView("")
	if m.show.Width > 0 {
		v.Content = top.Render(m.state, m.show)
	}
	v.AltScreen = true
	return v
}
