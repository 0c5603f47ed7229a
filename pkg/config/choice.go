package config

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// Mode says whether Sluice acts.
type Mode string

// The modes.
const (
	On      Mode = "on"
	Preview Mode = "preview" // decide, log and report, but change nothing
)

// UnmarshalText reads "on" or "preview".
func (m *Mode) UnmarshalText(text []byte) error { return choose(m, text, On, Preview) }

// Neighbours says what to do on a node where koordlet or katalyst-agent runs: a
// second writer of the same settings.
type Neighbours string

// The answers to a neighbour.
const (
	NeighboursPreview Neighbours = "preview" // as Mode Preview while one is there
	NeighboursIgnore  Neighbours = "ignore"  // act as if there were none
)

// UnmarshalText reads "preview" or "ignore".
func (n *Neighbours) UnmarshalText(text []byte) error {
	return choose(n, text, NeighboursPreview, NeighboursIgnore)
}

// FailurePolicy says what the runtime does with containers while the plugin is
// away, where the runtime is new enough to be told.
type FailurePolicy string

// The failure policies.
const (
	FailOpen   FailurePolicy = "open"   // containers start unmanaged, and are placed later
	FailClosed FailurePolicy = "closed" // containers fail
)

// UnmarshalText reads "open" or "closed".
func (p *FailurePolicy) UnmarshalText(text []byte) error {
	return choose(p, text, FailOpen, FailClosed)
}

// LogLevel is the least severe level that is logged: error, warn, info or debug.
type LogLevel string

// UnmarshalText reads a level.
func (l *LogLevel) UnmarshalText(text []byte) error {
	return choose(l, text, "error", "warn", "info", "debug")
}

// LogFormat is text or json.
type LogFormat string

// UnmarshalText reads a format.
func (f *LogFormat) UnmarshalText(text []byte) error { return choose(f, text, "text", "json") }

func choose[T ~string](into *T, text []byte, choices ...T) error {
	if !slices.Contains(choices, T(text)) {
		names := make([]string, len(choices))
		for i, c := range choices {
			names[i] = string(c)
		}
		last := len(names) - 1
		return errors.New("must be " + strings.Join(names[:last], ", ") + " or " + names[last])
	}
	*into = T(text)
	return nil
}

func matchesAny(globs []string, text string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		ok, err := path.Match(glob, text)
		return ok && err == nil
	})
}
