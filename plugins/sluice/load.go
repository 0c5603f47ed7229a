package main

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/pkg/sim"
	"github.com/sluice-dev/sluice/pkg/sim/recording"
	"github.com/sluice-dev/sluice/plugins/sluice/internal/record"
)

// readLoad reads a scenario or a recording. The older part of a recording of days comes before it.
func readLoad(c *cobra.Command, file string) ([]byte, error) {
	text, err := readInput(c, file)
	if err != nil || !recording.IsDays(text) {
		return text, err
	}
	older, err := os.ReadFile(record.OlderPart(file))
	if errors.Is(err, fs.ErrNotExist) {
		return text, nil
	}
	return append(older, text...), err
}

// serviceFlags say what recorded containers answer, of which recordings know nothing.
type serviceFlags struct{ time, slo time.Duration }

func newServiceFlags(c *cobra.Command) *serviceFlags {
	s := &serviceFlags{}
	c.Flags().DurationVar(&s.time, "service", 2*time.Millisecond, "CPU time per request of recorded online containers")
	c.Flags().DurationVar(&s.slo, "slo", 20*time.Millisecond, "response time that 99 % of their requests should meet")
	return s
}

func (s *serviceFlags) of() sim.Service { return sim.Service{Time: s.time, SLO: s.slo} }
