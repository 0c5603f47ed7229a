package main

import (
	"strings"
	"testing"
)

// A configuration that serves metrics to other hosts is valid, and the output says that it does.
func TestCheckWarnsOfOpenMetrics(t *testing.T) {
	t.Parallel()
	for listen, warns := range map[string]bool{"127.0.0.1:9745": false, "0.0.0.0:9745": true} {
		for _, args := range [][]string{{"check", "-f", "-"}, {"check", "-f", "-", "--machine", "8 cores"}} {
			got := run(t, "metrics: {listen: \""+listen+"\"}\n", args...)
			if got.exit != 0 || strings.Count(got.errs, "-: warning: metrics.listen: 0.0.0.0:9745 is not loopback") != map[bool]int{true: 1}[warns] {
				t.Errorf("%s, %v: exit status %d\n%s%s", listen, args, got.exit, got.out, got.errs)
			}
		}
	}
}
