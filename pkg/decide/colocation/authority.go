package colocation

import (
	"cmp"

	"github.com/sluice-dev/sluice/pkg/decide/control"
)

// Authority says what the loop's controllers may do.
type Authority struct {
	Loop   control.Mode // mode of every controller that has no mode of its own
	Writes bool         // whether Sluice may change anything at all
}

// Of returns the mode in force of a controller whose own mode is given; "" stands for the mode
// of the loop.
func (may Authority) Of(own control.Mode) control.Mode {
	mode := cmp.Or(own, may.Loop)
	if mode == control.On && !may.Writes {
		return control.Preview
	}
	return mode
}

// Decides reports whether a controller decides at all.
func (may Authority) Decides(own control.Mode) bool { return may.Of(own) != control.Off }

// Acts reports whether what a controller decides is carried out.
func (may Authority) Acts(own control.Mode) bool { return may.Of(own) == control.On }

// Heeds reports whether a controller does what another one asks for. A controller that acts
// ignores one that is in preview.
func (may Authority) Heeds(own, asking control.Mode) bool { return may.Acts(asking) || !may.Acts(own) }

// BoundsMode returns the mode in force of bounds on waiting. They can't act if nothing divides CPU
// between services and batch work: pools if those have CPUs of their own, and batch otherwise.
func (may Authority) BoundsMode(cfg *control.Config, exclusivePools bool) control.Mode {
	divides := cfg.Batch.Mode
	if exclusivePools {
		divides = cfg.Pools.Mode
	}
	if mode := may.Of(cfg.SLO.Mode); mode != control.On || may.Acts(divides) {
		return mode
	}
	return control.Preview
}
