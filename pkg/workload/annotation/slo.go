package annotation

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// leastShare is the lowest bound in percent: what the kernel's figures distinguish.
const leastShare = 0.1

// parseSLO parses a mapping like {runDelay: 5%, latency: {metric: …, bound: 20ms, port: 8080}}.
func parseSLO(text string) (s workload.SLO, err error) {
	err = parseMapping(text,
		shareField("runDelay", &s.RunDelay), shareField("cpuPressure", &s.CPUPressure),
		shareField("memoryPressure", &s.MemoryPressure), shareField("ioPressure", &s.IOPressure),
		field{"latency", func(node *yaml.Node) (err error) {
			s.Latency, err = readObjective(node)
			return err
		}})
	if err == nil && s == (workload.SLO{}) {
		err = errors.New("must have a bound on runDelay, cpuPressure, memoryPressure, ioPressure or latency")
	}
	return s, err
}

// shareField parses a share of time like 5% or 0.5%.
func shareField(name string, into *float64) field {
	return field{name, func(node *yaml.Node) error {
		number, ok := strings.CutSuffix(scalar(node), "%")
		percent, err := strconv.ParseFloat(number, 64)
		if !ok || err != nil || strings.Trim(number, "0123456789.") != "" || percent < leastShare || percent > 100 {
			return errors.New("must be a share of time, 0.1% to 100%")
		}
		*into = percent / 100
		return nil
	}}
}

// percent formats a share of time as an annotation names it.
func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/100, 'f', -1, 64) + "%"
}
