package doctor

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/pkg/kernel/cgroupfs"
)

// TestCycles checks that the doctor says what counting cycles per instruction lacks, and what to do.
func TestCycles(t *testing.T) {
	t.Parallel()
	const name, none, perfmon, admin = "cycles per instruction", "0000000001080002", "0000004001080002", "0000000001281002"
	for title, c := range map[string]struct {
		facts        *Cycles
		capabilities string
		want         string // the finding with what it advises; "" for none
	}{
		"off":              {nil, none, ""},
		"all is well":      {&Cycles{}, perfmon, "ok by the processor's counters"},
		"an older kernel":  {&Cycles{}, admin, "ok by"},
		"before the start": {&Cycles{}, "", "ok by"},
		"few rights":       {&Cycles{}, none, "warn the plugin runs without CAP_PERFMON: it can count none; grant it CAP_PERFMON, and"},
		"not root":         {&Cycles{fmt.Errorf("no: %w", fs.ErrPermission)}, perfmon, "warn no: permission denied; run sluice doctor as root"},
		"a guest":          {&Cycles{fmt.Errorf("none: %w", cgroupfs.ErrUnsupported)}, perfmon, "warn none: not supported here; what resctrl counts"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			files := texts{}
			if c.capabilities != "" {
				files["proc/9/cmdline"] = "/usr/bin/sluice\x00run\x00"
				files["proc/9/status"] = "Name:\tsluice\nPPid:\t1\nCapEff:\t" + c.capabilities + "\n"
			}
			f := facts(host(t, "2 cores", v2(), files), mainlineV2())
			f.Cycles = c.facts
			r := Examine(f)
			helpful(t, &r)
			got := ""
			for _, f := range r.Findings {
				if f.Name == name {
					got += f.Level.String() + " " + f.What + "; " + f.Do
				}
			}
			if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
