package annotation

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// readNames returns the labels and annotations whose values are parsed, with the project's own
// ones for each scope.
func readNames() (annotations, labels []string) {
	for _, k := range Keys() {
		for _, scope := range []string{"", "/pod", "/container.app"} {
			annotations = append(annotations, k+".sluice.dev"+scope)
		}
	}
	annotations = append(annotations, koordBurst, koordCPU, koordMemory, koordIO, koordResctrl, koordExtended, koordOOM, koordOOMs,
		koordEvictRank, koordNetwork, koordSpec, koordStatus, katalystQoS, katalystCPU, katalystMemory)
	return annotations, []string{koordQoS, koordPriority, koordCores, koordCorePlan, koordEvict}
}

// hostileValues are values that an attacker may write: large, deeply nested, expanding, and with
// characters that terminals, logs or pages interpret.
func hostileValues() map[string]string {
	bomb := "a: &a [x,x]\n"
	for c := 'b'; c < 'z'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1)
	}
	return map[string]string{
		"256 KiB":          strings.Repeat("a", 256<<10),
		"256 KiB of JSON":  `{"cpuset":"` + strings.Repeat("0,", 128<<10) + `0"}`,
		"deep JSON":        strings.Repeat(`{"a":`, 700),
		"deep lists":       strings.Repeat("[", 4096),
		"deep YAML":        strings.Repeat("- ", 2000),
		"aliases":          bomb,
		"a loop":           "a: &a {b: *a}\n",
		"an alias":         "&a {weight: 1, devices: {x: *a}}",
		"a long anchor":    "{weight: *" + strings.Repeat("a", 4000) + "}",
		"a long number":    `{"groupIdentity":` + strings.Repeat("9", 4000) + "}",
		"a slow number":    "1e4444444444400",
		"a slow limit":     `{"EgressLimit":"1e4444444444400","IngressLimit":1e4444444444400}`,
		"many keys":        "{" + strings.Repeat("weight: 1, ", 300) + "}",
		"many blocks":      `{"blocks":[` + strings.Repeat(`{"type":"x"},`, 300) + `{}]}`,
		"a terminal's":     "\x1b]0;owned\a\x1b[2J\u009b31m",
		"lines":            "LS\nlevel=error msg=\"all is lost\"\r\n",
		"right to left":    "\u202eSL\u2066",
		"no UTF-8":         "\xff\xfe\x00",
		"in YAML":          "{\"\x1b[2J\u202e\": 1}",
		"in JSON":          "{\"policy\":\"\\u001b[2J\\u202e\",\"name\":\"\\u009b\"}",
		"markup":           "<script>alert(1)</script>",
		"a shell's":        "$(reboot)`reboot`;reboot",
		"a path":           "../../../../../etc/shadow",
		"a long word list": strings.Repeat("cpu-burst,", 400),
	}
}

// For every value, the answer is bounded and printable, and names the size if the value is too
// long.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	const most = 2048 // maximum length of one message
	annotations, labels := readNames()
	for name, value := range hostileValues() {
		for i, key := range append(annotations, labels...) {
			for _, onInvalid := range []OnInvalid{Reject, Ignore} {
				r := rules()
				r.OnInvalid, r.RDTPerPod = onInvalid, true
				p, c := pod(workload.Guaranteed, 4000, "class.sluice.dev=LSR")
				if i < len(annotations) {
					p.Annotations[key] = value
				} else {
					p.Labels[key] = value
				}
				_, warnings, err := r.Request(Facts{ThreadsPerCore: 2, Memory: 64 * gib}, p, c)
				var texts []string
				if err != nil {
					texts = append(texts, strings.Split(err.Error(), "\n")...) // of errors.Join
				}
				for _, w := range warnings {
					texts = append(texts, w.Text)
				}
				if len(texts) > 4 {
					t.Errorf("%s in %s: %d messages", name, key, len(texts))
				}
				for _, text := range texts {
					if len(text) > most || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
						t.Errorf("%s in %s: the message is %d bytes long: %.300q", name, key, len(text), text)
					}
				}
				tooLong := len(value) > maxLength && i < len(annotations) && key != katalystQoS // a value that is only compared with words
				if tooLong && !strings.Contains(strings.Join(texts, "\n"), "at most 4096 are read") {
					t.Errorf("%s in %s: %.300q", name, key, texts)
				}
			}
		}
	}
}

// A pod with thousands of keys costs one check of each, and gets a bounded answer.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	for form, fails := range map[string]bool{
		"%d.sluice.dev": true, "x.sluice.dev/%d": true, "cpus.sluice.dev/%d": true, "sluice.dev/%d": true,
		"cpus.sluice.dev/container.%d": false, "%d.koordinator.sh/x": false, "example.org/%d": false, "cpus.sluice.device/%d": false,
	} {
		p, c := pod(workload.Guaranteed, 4000)
		for n := range 10000 {
			p.Annotations[fmt.Sprintf(form, n)] = strings.Repeat("x", 26)
		}
		rules := rules()
		got, warnings, err := rules.Request(Facts{ThreadsPerCore: 2}, p, c)
		switch {
		case fails != (err != nil):
			t.Errorf("%s: %v", form, err)
		case fails && (len(err.Error()) > 8192 || !strings.Contains(err.Error(), "9995 more keys")):
			t.Errorf("%s: %d bytes: %.300s", form, len(err.Error()), err)
		case !fails && (got.Class != workload.LS || len(warnings) > 0):
			t.Errorf("%s: %s %q", form, got.Class, warnings)
		}
	}
}
