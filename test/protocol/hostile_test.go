package protocol

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHostileAnnotations gives every key every value that an attacker might try. No value may
// crash the plugin, delay the next container or leak. A refusal names pod, container, key and
// value.
func TestHostileAnnotations(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, key := range keys {
		for name, value := range hostile() {
			p := Pod{Name: "evil", QoS: "guaranteed", Annotations: map[string]string{"class.sluice.dev": "LSR"}}
			if label, isLabel := strings.CutPrefix(key, "label:"); isLabel {
				p.Labels = map[string]string{label: value}
			} else {
				p.Annotations[key] = value
			}
			pod := n.pod(p)
			c, err := n.Run(pod, "main", Requests{CPU: 2000})
			if err != nil {
				value = strings.TrimSpace(value)
				shown := strings.TrimSuffix(strconv.Quote(value[:min(len(value), 8)]), `"`)
				for _, part := range []string{"default/evil/main", strings.TrimPrefix(key, "label:"), shown} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%s = %s: the error does not tell %q: %v", key, name, part, err)
					}
				}
				if len(err.Error()) > 2000 || !utf8.ValidString(err.Error()) {
					t.Errorf("%s = %s: the error has %d bytes", key, name, len(err.Error()))
				}
			} else {
				n.ok(n.Stop(c))
				n.ok(n.Remove(c))
			}
			n.ok(n.RemovePod(pod))
			if !n.plugin.Alive() {
				t.Fatalf("%s = %s: sluice ended:\n%s", key, name, n.plugin.Log)
			}
		}
		n.wantPinned("")
	}
}

var keys = []string{
	"class.sluice.dev", "class.sluice.dev/pod", "class.sluice.dev/container.main", "pool.sluice.dev",
	"cpus.sluice.dev", "cpuset.sluice.dev", "numa.sluice.dev", "smt.sluice.dev", "l3.sluice.dev",
	"near.sluice.dev", "memory-nodes.sluice.dev", "exclusive.sluice.dev", "exclusive-group.sluice.dev",
	"memory-qos.sluice.dev", "io.sluice.dev", "required.sluice.dev", "unknown.sluice.dev", "sluice.dev/x",
	"label:koordinator.sh/qosClass", "label:koordinator.sh/priority-class",
	"scheduling.koordinator.sh/resource-spec", "scheduling.koordinator.sh/resource-status",
	"katalyst.kubewharf.io/qos_level", "katalyst.kubewharf.io/cpu_enhancement", "katalyst.kubewharf.io/memory_enhancement",
}

func hostile() map[string]string {
	return map[string]string{
		"nothing":             "",
		"a space":             " ",
		"a megabyte":          strings.Repeat("9", 1<<20),
		"a long list":         strings.Repeat("0,", 1<<19),
		"NULs":                "0\x001\x00",
		"a newline":           "0-1\nlevel=error msg=forged",
		"an escape":           "\x1b[2J0",
		"a path":              "../../../../etc/passwd",
		"negative":            "-1",
		"huge":                "18446744073709551616",
		"a huge range":        "0-18446744073709551615",
		"backwards":           "7-0",
		"all":                 "0-8191",
		"a number for true":   `{"cpuset":1,"numaNodeResources":[{"node":-1}]}`,
		"a huge node":         `{"numaNodeResources":[{"node":99999999999}]}`,
		"many nodes":          `{"numaNodeResources":[` + strings.Repeat(`{"node":1},`, 1<<16) + `{"node":1}]}`,
		"deep JSON":           strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000),
		"deep lists":          strings.Repeat("[", 500_000),
		"deep YAML":           strings.Repeat("- ", 200_000) + "x",
		"a billion laughs":    billionLaughs(),
		"repeated keys":       `{"cpuset":"0","cpuset":"1","CPUSET":"2"}`,
		"a template":          "{{.}}%s%n$(reboot)`reboot`",
		"a right-to-left one": "\u202e1-0",
	}
}

// billionLaughs returns YAML whose aliases expand to 10^9 items.
func billionLaughs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol,lol]\n")
	for i := 1; i < 9; i++ {
		was := string(rune('0' + i - 1))
		now := string(rune('0' + i))
		b.WriteString("a" + now + ": &a" + now + " [" + strings.TrimSuffix(strings.Repeat("*a"+was+",", 10), ",") + "]\n")
	}
	return b.String()
}
