package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/sim/tune"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
)

// search runs 'sluice sim --tune'.
func (o *simOptions) search(c *cobra.Command, cfg *config.Config, names []string) error {
	options := tune.Options{Config: cfg, Service: o.service.of(), Late: -1, Windows: o.windows}
	if o.late != "" {
		var late sim.Percent
		if err := late.UnmarshalText([]byte(o.late)); err != nil || late > 1 {
			return fmt.Errorf("--late %.40q: it must be a share of 0%% to 100%%, like 0.1%%", o.late)
		}
		options.Late = float64(late)
	}
	const mostWindows = 1000
	if o.windows < 2 || o.windows > mostWindows {
		return fmt.Errorf("--windows %d: it must be 2 to %d", o.windows, mostWindows)
	}
	loads, err := o.loads(c, names)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := tune.Run(ctx, loads, options)
	if err != nil {
		return err
	}
	if o.output.String() == "json" {
		return terminal.JSON(c.OutOrStdout(), result)
	}
	all := make([]string, len(loads))
	for i := range loads {
		all[i] = loads[i].Name
	}
	return render.Tune(c.OutOrStdout(), strings.Join(all, ", "), result)
}

// loads reads the files, and the scenarios of those names.
func (o *simOptions) loads(c *cobra.Command, names []string) ([]tune.Load, error) {
	var all []tune.Load
	for _, file := range o.files {
		text, err := readLoad(c, file)
		if err != nil {
			return nil, err
		}
		load := tune.Load{Name: loadName(file)}
		if recording.Is(text) {
			if load.Recording, err = recording.Read(bytes.NewReader(text)); err != nil {
				err = fmt.Errorf("%s: %w", file, err)
			}
		} else {
			load.Scenario, err = parseScenario(file, text)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, load)
	}
	for _, name := range names {
		text, err := sim.Text(name)
		if err != nil {
			return nil, err
		}
		s, err := parseScenario(name, text)
		if err != nil {
			return nil, err
		}
		all = append(all, tune.Load{Name: name, Scenario: s})
	}
	return all, nil
}
