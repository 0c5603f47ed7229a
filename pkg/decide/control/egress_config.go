package control

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// EgressConfig limits what batch work sends.
type EgressConfig struct {
	Mode             Mode      `yaml:"mode"`             // Mode of limits for what batch work sends.
	ThresholdPercent int       `yaml:"thresholdPercent"` // Part of the link in percent up to which batch work may fill it.
	FloorPercent     int       `yaml:"floorPercent"`     // What batch work may always send, in percent of the link.
	LinkSpeed        LinkSpeed `yaml:"linkSpeed"`        // Speed of the node's link in bits per second, for example 10G; 0 for what the kernel says.
	Interfaces       []string  `yaml:"interfaces"`       // Network devices that are the node's link; empty for those of its default routes.
}

// interfaceName is the name of a network device (dev_valid_name in net/core/dev.c), without what no
// file name in /sys/class/net has.
var interfaceName = regexp.MustCompile(`^[^/:\s]{1,15}$`)

// mostThresholdPercent leaves a part of the link to services that want more: it is how much more they are seen to send
// from one reading to the next, while many connections of batch work fill all that they may.
const mostThresholdPercent = 95

// Check returns the values that are out of range.
func (c *EgressConfig) Check() []Problem {
	all := checkPercent(nil, "thresholdPercent", c.ThresholdPercent, 10, mostThresholdPercent)
	all = checkPercent(all, "floorPercent", c.FloorPercent, 1, c.ThresholdPercent)
	for i, name := range c.Interfaces {
		if !interfaceName.MatchString(name) || name == "." || name == ".." || name == "lo" {
			all = append(all, Problem{fmt.Sprintf("interfaces[%d]", i), fmt.Sprintf("%.40q: must be the name of a network device that is not the loopback, such as eth0", name)})
		}
	}
	return all
}

// LinkSpeed is an amount of bits per second in the configuration, such as "10G".
type LinkSpeed observe.BitRate

// UnmarshalText parses a Kubernetes quantity.
func (s *LinkSpeed) UnmarshalText(text []byte) error {
	amount, err := quantity.Parse(string(text))
	if err != nil {
		return err
	}
	if bits := amount.Value(); bits != 0 && (bits < workload.LeastEgress || bits > workload.MostEgress) {
		return errors.New("must be 64k to 10T bits per second, such as 10G, or 0")
	}
	*s = LinkSpeed(amount.Value())
	return nil
}

// MarshalText returns the number of bits per second.
func (s LinkSpeed) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(s), 10), nil }
