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
	"github.com/sluice-dev/sluice/pkg/view/render"
	"github.com/sluice-dev/sluice/plugins/internal/cli"
)

// simOptions are the flags of `sluice sim`.
type simOptions struct {
	files    []string
	policies []string
	equal    bool
	list     bool
	all      bool
	seed     int
	svg      string
	service  *serviceFlags
	output   *cli.Choice

	config  string // file
	tune    bool
	late    string
	windows int
}

func newSim() *cobra.Command {
	o := simOptions{}
	c := &cobra.Command{
		Use:   "sim [-f scenario.yaml | NAME | --all]",
		Short: "Simulate policies on a scenario, in virtual time",
		Long: `Run the plugin's agent on a simulated node in virtual time; a day takes less
than a minute. Pods and their load come from a scenario; CPUs, memory and
cgroups are models. Nothing on this machine is read or changed. The output
compares these policies:

  unmanaged    Kubernetes alone: CPU weights and limits
  static       separate pools of fixed sizes, chosen for each pool's peak load
  suppression  overlapping pools; batch work gets what online work leaves
  koordinator  the same by Koordinator's formula, once a second
  lar          separate pools by the rules of Meituan's Load Auto-Regulator
  pools        separate pools that follow the load: the whole control loop
  forecast     pools that also count with forecasts, learned in the two weeks
               before, of equal load by time of day and of the week

A service is late while fewer than 99 % of its requests would be answered within
its SLO. --equal answers: at the same rate of late responses, how full can each
policy run the node? It tunes each policy's own setting (sizes, threshold,
bands), or else reduces the load, until services are late no more than the
scenario's budget allows; this takes several runs per policy. --all does so for
every built-in scenario, one after the other, which with --equal takes an hour
on two CPUs; -o markdown writes one table of all.

--tune searches the configuration that gives batch work the most CPU while
services are late no more than with the present configuration (--config), or
for at most --late of their time. It tries thresholds where the pools overlap,
and bands, RCF and times where they have CPUs of their own, on the first two
thirds of the days of recordings, and tests the result on the last. The output
is a file for 'sluice check' and for the fleet's policy, with the tables that
justify it as comments. Recorded batch work is replaced by some that takes all
CPUs that it can get, and services are late by the queueing model, with
--service and --slo. This takes some minutes.

The same scenario and seed give the same output. docs/simulation.md describes
the model and its assumptions.`,
		Example: `  sluice sim --list
  sluice sim daily-tide
  sluice sim daily-tide --policy unmanaged,pools --svg tide.svg
  sluice sim -f scenario.yaml --equal
  sluice sim -f scenario.yaml --seed 7 -o json
  sluice sim --all --equal -o markdown
  sluice sim --tune -f days.rec -c /etc/sluice/sluice.yaml
  sluice sim --tune -f node1.rec -f node2.rec --late 0.1% -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			given := len(args) + len(o.files)
			if o.tune {
				if o.list || o.all || o.equal || o.svg != "" || len(o.policies) > 0 || given == 0 || o.output.String() == "markdown" {
					return errors.New("sim --tune takes recordings or scenarios, without --list, --all, --equal, --policy, --svg and -o markdown")
				}
				return nil
			}
			for _, is := range []bool{o.all, o.list} {
				if is {
					given++
				}
			}
			switch {
			case given != 1:
				return errors.New("sim takes one scenario: a name of --list, or a file with -f; or --all")
			case o.all && o.svg != "":
				return errors.New("--svg draws one scenario, not all")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return sim.Shipped(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	f := c.Flags()
	f.StringArrayVarP(&o.files, "file", "f", nil, "scenario or recording `file`; - is standard input; with --tune it can be given several times")
	f.StringVarP(&o.config, "config", "c", "", "configuration `file` for recordings and --tune (default: the built-in one)")
	f.BoolVar(&o.tune, "tune", false, "search a configuration with more batch work")
	f.StringVar(&o.late, "late", "", "with --tune, share of their time that services may be late, as 0.1% (default: as with the present configuration)")
	f.IntVar(&o.windows, "windows", 16, "with --tune, number of windows of each recording to compare candidates on")
	f.StringSliceVar(&o.policies, "policy", nil, "policies to run (default: all)")
	f.BoolVar(&o.equal, "equal", false, "compare utilization at an equal rate of late responses")
	f.BoolVar(&o.list, "list", false, "list the built-in scenarios")
	f.BoolVar(&o.all, "all", false, "run every built-in scenario")
	f.IntVar(&o.seed, "seed", 0, "seed of the random numbers (default: the scenario's)")
	f.StringVar(&o.svg, "svg", "", "draw the pools over time into this `file`")
	o.service = newServiceFlags(c)
	o.output = cli.OutputFlag(c, "table", "json", "markdown")
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
	cfg, _, err := config.Load(o.config)
	if err != nil {
		return err
	}
	if o.tune {
		return o.search(c, cfg, args)
	}
	policies, err := sim.ParsePolicies(o.policies)
	if err != nil {
		return err
	}
	names := args
	switch {
	case o.all:
		names = sim.Shipped()
	case len(o.files) > 0:
		names = o.files
	}
	out := &simOutput{c.OutOrStdout(), o.output.String(), o.equal, policies, nil}
	if err := out.begin(); err != nil {
		return err
	}
	for _, name := range names {
		s, name, err := o.scenario(c, name, cfg)
		if err != nil {
			return err
		}
		if err := (simulation{name, s, policies, o.equal, o.svg, out}).run(c); err != nil {
			return err
		}
	}
	return out.end()
}

// simulation is a set of policies to compare on a scenario, and how to show the results.
type simulation struct {
	name     string
	scenario *sim.Scenario
	policies []sim.Policy
	equal    bool
	svg      string // file; "" for none
	output   *simOutput
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
	return s.output.add(s.scenario, sim.Comparison{Scenario: s.name, Budget: float64(s.scenario.Budget), Results: results})
}

// parse parses a scenario, or turns a recording into one.
func (o *simOptions) parse(name string, text []byte, cfg *config.Config) (*sim.Scenario, error) {
	if recording.Is(text) {
		s, err := sim.LoadRecording(bytes.NewReader(text), cfg, o.service.of())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return s, nil
	}
	if o.config != "" {
		return nil, fmt.Errorf("--config %s: %s is a scenario, which has its configuration under its key config", o.config, name)
	}
	return parseScenario(name, text)
}

func parseScenario(name string, text []byte) (*sim.Scenario, error) {
	s, err := sim.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", name, err)
	}
	return s, nil
}

// scenario returns the scenario of a file if there is one in the options, or else the built-in one by
// that name; and its name.
func (o *simOptions) scenario(c *cobra.Command, name string, cfg *config.Config) (*sim.Scenario, string, error) {
	var text []byte
	var err error
	if len(o.files) > 0 {
		text, err = readLoad(c, name)
		name = loadName(name)
	} else {
		text, err = sim.Text(name)
	}
	if err != nil {
		return nil, "", err
	}
	s, err := o.parse(name, text, cfg)
	if err != nil {
		return nil, "", err
	}
	if c.Flags().Changed("seed") {
		s.Seed = o.seed
	}
	return s, name, nil
}

func loadName(file string) string { return strings.TrimSuffix(filepath.Base(file), ".yaml") }
