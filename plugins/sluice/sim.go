package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// simOptions are the flags of `sluice sim`.
type simOptions struct {
	file     string
	policies []string
	equal    bool
	list     bool
	seed     int
	svg      string
	service  *serviceFlags
	output   *cli.Choice
}

func newSim() *cobra.Command {
	o := simOptions{}
	c := &cobra.Command{
		Use:   "sim [-f scenario.yaml | NAME]",
		Short: "Simulate policies on a scenario, in virtual time",
		Long: `Run the plugin's agent on a simulated node in virtual time; a day takes less
than a minute. Pods and their load come from a scenario; CPUs, memory and
cgroups are models. Nothing on this machine is read or changed. The output
compares these policies:

  unmanaged    Kubernetes alone: CPU weights and limits
  static       separate pools of fixed sizes, chosen for each pool's peak load
  suppression  overlapping pools; batch work gets what online work leaves
  pools        separate pools that follow the load: the whole control loop
  forecast     pools that also count with forecasts, learned in a week of equal
               load by time of day

A service is late while fewer than 99 % of its requests would be answered within
its SLO. --equal answers: at the same rate of late responses, how full can each
policy run the node? It tunes each policy's own setting (sizes, threshold,
bands), or else reduces the load, until services are late no more than the
scenario's budget allows; this takes several runs per policy.

The same scenario and seed give the same output. docs/simulation.md describes
the model and its assumptions.`,
		Example: `  sluice sim --list
  sluice sim daily-tide
  sluice sim daily-tide --policy unmanaged,pools --svg tide.svg
  sluice sim -f scenario.yaml --equal
  sluice sim -f scenario.yaml --seed 7 -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			given := len(args)
			if o.file != "" {
				given++
			}
			if o.list && given > 0 || !o.list && given != 1 {
				return errors.New("sim takes one scenario: a name of --list, or a file with -f")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return sim.Shipped(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	f := c.Flags()
	f.StringVarP(&o.file, "file", "f", "", "scenario or recording `file`; - is standard input")
	f.StringSliceVar(&o.policies, "policy", nil, "policies to run (default: all)")
	f.BoolVar(&o.equal, "equal", false, "compare utilization at an equal rate of late responses")
	f.BoolVar(&o.list, "list", false, "list the built-in scenarios")
	f.IntVar(&o.seed, "seed", 0, "seed of the random numbers (default: the scenario's)")
	f.StringVar(&o.svg, "svg", "", "draw the pools over time into this `file`")
	o.service = newServiceFlags(c)
	o.output = cli.OutputFlag(c, "table", "json")
	c.RunE = o.run
	return c
}

func (o *simOptions) run(c *cobra.Command, args []string) error {
	if o.list {
		names, all, err := sim.ShippedScenarios()
		if err != nil {
			return err
		}
		return render.Scenarios(c.OutOrStdout(), names, all)
	}
	name, text, err := o.scenario(c, args)
	if err != nil {
		return err
	}
	s, err := o.parse(name, text)
	if err != nil {
		return err
	}
	if c.Flags().Changed("seed") {
		s.Seed = o.seed
	}
	policies, err := sim.ParsePolicies(o.policies)
	if err != nil {
		return err
	}
	return simulation{name, s, policies, o.equal, o.svg, o.output}.run(c)
}

// simulation is a set of policies to compare on a scenario, and how to show the results.
type simulation struct {
	name     string
	scenario *sim.Scenario
	policies []sim.Policy
	equal    bool
	svg      string // file; "" for none
	output   *cli.Choice
}

func (s simulation) run(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	compare := sim.Compare
	if s.equal {
		compare = sim.CompareEqual
	}
	results, err := compare(ctx, s.scenario, s.policies)
	if err == nil && s.svg != "" {
		err = sim.Draw(s.svg, s.name, results)
	}
	if err != nil {
		return err
	}
	if s.output.String() == "json" {
		return terminal.JSON(c.OutOrStdout(), results)
	}
	return render.Sim(c.OutOrStdout(), s.name, s.scenario, results, s.equal)
}

// parse parses a scenario, or turns a recording into one.
func (o *simOptions) parse(name string, text []byte) (*sim.Scenario, error) {
	if recording.Is(text) {
		s, err := sim.LoadRecording(bytes.NewReader(text), config.Default(), o.service.of())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return s, nil
	}
	s, err := sim.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", name, err)
	}
	return s, nil
}

// scenario returns the text of the scenario and its name.
func (o *simOptions) scenario(c *cobra.Command, args []string) (name string, text []byte, err error) {
	if o.file == "" {
		text, err = sim.Text(args[0])
		return args[0], text, err
	}
	text, err = readLoad(c, o.file)
	return strings.TrimSuffix(filepath.Base(o.file), ".yaml"), text, err
}
