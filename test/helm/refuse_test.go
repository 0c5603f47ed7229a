package helm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Mistakes in values are refused with the key, the value or what is allowed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"mod: on":                 "additional properties 'mod' not allowed",
		"image: {tagg: x}":        "at '/image': additional properties 'tagg' not allowed",
		"mode: active":            "at '/mode': value must be one of 'on', 'preview', 'restore', 'off'",
		"maxUnavailable: 0":       "at '/maxUnavailable'",
		"nodeGroups: [{name: a}]": "at '/nodeGroups/0': missing property 'nodeSelector'",
		"nodeGroups: [{name: a, nodeSelector: {}}]":                                        "at '/nodeGroups/0/nodeSelector'",
		"nodeGroups: [{name: A, nodeSelector: {a: b}}]":                                    "at '/nodeGroups/0/name'",
		"nodeGroups: [{name: kube, nodeSelector: {a: b}}]":                                 "at '/nodeGroups/0/name'",
		"nodeGroups: [{name: a, nodeSelector: {a: b}, mod: on}]":                           "at '/nodeGroups/0': additional properties 'mod' not allowed",
		"nodeGroups: [{name: a, nodeSelector: {a: true}}]":                                 "at '/nodeGroups/0/nodeSelector/a': got boolean, want string",
		"{nodeGroups: [{name: a, nodeSelector: {a: b}}, {name: a, nodeSelector: {a: c}}]}": `two groups are called "a"`,
		"config: {mode: on}":                       "at '/config': got object, want string",
		"config: 'mode: on'":                       `config has the key "mode": remove it there, and set the chart's value mode`,
		"config: 'metrics: {}'":                    `the chart's value metrics.listen`,
		"config: 'a: b: c'":                        "config is not YAML",
		"config: 'classify: [{set: {class: BE}}]'": "classify in another form",
		"nodeGroups: [{name: a, nodeSelector: {a: b}, config: 'mode: on'}]": "config of node group a has the key",
		"metrics: {podMonitor: {enabled: true}}":                            "metrics.podMonitor.enabled needs metrics.listen",
		"kube: {enabled: true, pins: true, dra: {enabled: true}}":           "set one of them to false",
		"kube: {enabled: true, topology: true}":                             "set kube.pins to true",
		"kube: {dra: {devices: cpu}}":                                       "at '/kube/dra/devices'",
		"config: 'control: {culprit: {cpi: true}}'":                         "set the chart's value cycles: true",
		"config: 'control: {egress: {mode: on}}'":                           "set the chart's value egress: true",
		"{egress: true, nodeGroups: [{name: a, nodeSelector: {a: b}, egress: false, config: 'control: {egress: {mode: default}}'}]}": "config of node group a has control.egress.mode",
		"kubeletDir: var/lib":       "at '/kubeletDir'",
		"image: {digest: sha256:1}": "at '/image/digest'",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, err := helm(t, "template", "sluice", chart, "--values", file)
		if err == nil || !strings.Contains(errs, want) {
			t.Errorf("%s: %v, want %q in\n%s%s", values, err, want, out, errs)
		}
	}
}
