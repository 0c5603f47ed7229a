package config

import (
	"fmt"
	"net/netip"
)

// Metrics is where and what a Prometheus finds besides the status socket.
type Metrics struct {
	Listen     string `yaml:"listen"`     // IP address and port that serve metrics over TCP, for example 127.0.0.1:9745.
	Containers bool   `yaml:"containers"` // Also export single containers and pods.
}

func (d *decoder) checkMetrics(c *Config) {
	if c.Metrics.Listen == "" {
		return
	}
	if at, err := netip.ParseAddrPort(c.Metrics.Listen); err != nil || at.Port() == 0 {
		d.fail("metrics.listen", "%s: must be an IP address and a port, as in 127.0.0.1:9745 or [::1]:9745, or empty for none", quote(c.Metrics.Listen))
	}
}

// Warnings returns warnings about settings that are allowed but risky, on any machine.
func (c *Config) Warnings() (warnings []string) {
	if at, err := netip.ParseAddrPort(c.Metrics.Listen); err == nil && !at.Addr().IsLoopback() {
		named := ""
		if c.Metrics.Containers {
			named = ", with the names of pods"
		}
		warnings = append(warnings, fmt.Sprintf("metrics.listen: %s is not loopback: whoever reaches it reads the metrics%s, without a password or encryption; let a firewall or a network policy name who may, or take 127.0.0.1:%d and a proxy", at, named, at.Port()))
	}
	return warnings
}
