// Package live shows frames of pkg/view/top on a terminal, one after the other, until it is
// told to end: it asks the plugin, reads keys and redraws what has changed.
package live

import (
	"context"
	"errors"
	"math"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sluice-dev/sluice/pkg/view/top"
)

// framesPerSecond bounds how soon a key shows; a look comes once a second.
const framesPerSecond = 10

// Watch shows frames on the terminal until it is quit, interrupted, or the context ends.
// Bubble Tea sends what has changed of a frame, without colours that the terminal lacks.
func Watch(ctx context.Context, from Source, interval time.Duration, show top.Options, options ...tea.ProgramOption) error {
	show.Live = true
	m := watching{interval: interval, show: show, look: func() tea.Msg {
		seen, err := Look(ctx, from)
		return looked{seen, err}
	}}
	options = append([]tea.ProgramOption{tea.WithContext(ctx), tea.WithFPS(framesPerSecond)}, options...)
	_, err := tea.NewProgram(m, options...).Run()
	if errors.Is(err, tea.ErrInterrupted) || ctx.Err() != nil {
		return nil //nolint:nilerr // whoever ends it knows
	}
	return err
}

// watching is the state of the view between two messages.
type watching struct {
	look     tea.Cmd // answers with looked
	interval time.Duration
	seen     top.Seen
	show     top.Options
}

// looked is what a look found.
type looked struct {
	seen top.Seen
	err  error
}

// due says that it is time to look again.
type due struct{}

// Init looks at once.
func (m watching) Init() tea.Cmd { return m.look }

// Update takes a message in. One look follows another: none waits for a slow one.
func (m watching) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.show.Width, m.show.Height = msg.Width, msg.Height
	case looked:
		if !m.show.Paused {
			m.take(msg)
		}
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return due{} })
	case due:
		if m.show.Paused {
			return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return due{} })
		}
		return m, m.look
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

// take keeps what was seen last where there is no answer.
func (m *watching) take(l looked) {
	m.show.Problem = ""
	if l.err != nil {
		m.show.Problem = l.err.Error()
		return
	}
	m.seen = l.seen
}

// farScroll is how many containers a page key scrolls.
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

// scroll puts another container to the top.
func (m *watching) scroll(first int) {
	if !m.show.Help {
		m.show.First = max(0, min(first, top.Last(m.seen, m.show)))
	}
}

// View draws the frame.
func (m watching) View() tea.View {
	v := tea.NewView("")
	if m.show.Width > 0 {
		v.Content = top.Render(m.seen, m.show)
	}
	v.AltScreen = true
	return v
}
