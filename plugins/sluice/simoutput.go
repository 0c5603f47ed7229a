package main

import (
	"fmt"
	"io"

	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
)

// simOutput shows the results of simulations. It writes tables scenario by scenario, and JSON at the
// end.
type simOutput struct {
	io.Writer
	format   string // table, json or markdown
	equal    bool
	policies []sim.Policy
	shown    []sim.Comparison
}

func (o *simOutput) begin() error {
	if o.format == "markdown" {
		return render.SimMarkdownHead(o, o.policies)
	}
	return nil
}

func (o *simOutput) add(s *sim.Scenario, c sim.Comparison) error {
	o.shown = append(o.shown, c)
	switch o.format {
	case "markdown":
		return render.SimMarkdownRow(o, c)
	case "table":
		if len(o.shown) > 1 {
			fmt.Fprintln(o)
		}
		return render.Sim(o, c.Scenario, s, c.Results, o.equal)
	}
	return nil
}

func (o *simOutput) end() error {
	switch {
	case o.format == "markdown" && len(o.shown) > 1:
		return render.SimMarkdownGains(o, o.shown, o.equal)
	case o.format != "json":
		return nil
	case len(o.shown) == 1:
		return terminal.JSON(o, o.shown[0].Results)
	}
	return terminal.JSON(o, o.shown)
}
