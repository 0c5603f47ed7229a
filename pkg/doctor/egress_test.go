package doctor

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestEgress checks that the doctor says what limits on what batch work sends lack, and how to get it.
func TestEgress(t *testing.T) {
	t.Parallel()
	const least, all = "0000000001080002", "0000000001281002"
	well := Egress{Devices: []string{"eth0", "eth1"}, Speed: 20e9}
	with := func(change func(*Egress)) *Egress {
		e := well
		change(&e)
		return &e
	}
	const good, link = "ok egress limits: by a token bucket filter", "ok link: eth0, eth1, 20 Gbit/s"
	for name, c := range map[string]struct {
		facts        *Egress
		capabilities string
		want         []string // the findings, each with what it advises
	}{
		"off":                {nil, least, nil},
		"all is well":        {&well, all, []string{good, link}},
		"before the start":   {&well, "", []string{good, link}},
		"the least rights":   {&well, least, []string{"warn egress limits: the plugin runs without CAP_SYS_ADMIN, CAP_NET_ADMIN: it can limit no pod; grant it: the chart's value egress: true, or for a service the drop-in egress.conf", link}},
		"not root":           {with(func(e *Egress) { e.Err = fmt.Errorf("making: %w", syscall.EPERM) }), all, []string{"warn egress limits: it could not be tried: making: operation not permitted; run sluice doctor as root", link}},
		"no filter":          {with(func(e *Egress) { e.Err = fmt.Errorf("none: %w", syscall.ENOENT) }), all, []string{"warn egress limits: not possible: none: no such file or directory; modprobe sch_tbf", link}},
		"no such device":     {with(func(e *Egress) { e.Devices = []string{"eth0", "eth9"} }), all, []string{good, "warn link: device eth9 of control.egress.interfaces is not there; name devices of ls"}},
		"no speed, no route": {with(func(e *Egress) { e.LinkErr = errors.New("the kernel knows no speed") }), all, []string{good, "warn link: the kernel knows no speed; control.egress.interfaces names"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := texts{"sys/class/net/eth0": "", "sys/class/net/eth1": ""}
			if c.capabilities != "" {
				files["proc/9/cmdline"] = "/usr/bin/sluice\x00run\x00"
				files["proc/9/status"] = "Name:\tsluice\nPPid:\t1\nCapEff:\t" + c.capabilities + "\n"
			}
			f := facts(host(t, "2 cores", v2(), files), mainlineV2())
			f.Egress = c.facts
			r := Examine(f)
			helpful(t, &r)
			var got []string
			for _, f := range r.Findings {
				if f.Name == "egress limits" || f.Name == "link" {
					got = append(got, f.Level.String()+" "+f.Name+": "+f.What+"; "+f.Do)
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("%q, want %q", got[i], want)
				}
			}
		})
	}
}
