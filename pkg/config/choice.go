package config

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// Mode says whether Sluice applies its decisions.
type Mode string

// These modes are supported.
const (
	On      Mode = "on"
	Preview Mode = "preview" // decide, log and report, but change nothing
)

// UnmarshalText reads "on" or "preview".
func (m *Mode) UnmarshalText(text []byte) error { return choose(m, text, On, Preview) }

// Neighbours says what to do on a node where koordlet or katalyst-agent, which write the same
// settings, runs.
type Neighbours string

// These reactions to a neighbour are supported.
const (
	NeighboursPreview Neighbours = "preview" // like Mode Preview while a neighbour is there
	NeighboursIgnore  Neighbours = "ignore"  // ignore neighbours
)

// UnmarshalText reads "preview" or "ignore".
func (n *Neighbours) UnmarshalText(text []byte) error {
	return choose(n, text, NeighboursPreview, NeighboursIgnore)
}

// FailurePolicy says what the runtime does with new containers while the plugin is not
// connected, if the runtime supports failure policies.
type FailurePolicy string

// These failure policies are supported.
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
