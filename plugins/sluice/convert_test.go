package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestConvert(t *testing.T) {
	t.Parallel()
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: nightly}\nspec: {template: {spec: {containers: [{name: main, resources: {requests: {cpu: 500m}}}]}}}\n"
	for name, test := range map[string]struct {
		args, in  string
		exit      int
		out, errs string
	}{
		"batch":       {"--batch", job, 0, "batch.sluice.dev/cpu: 500", "-: line 4: Job nightly container main: cpu 500m becomes batch.sluice.dev/cpu 500\n"},
		"koordinator": {"--batch --resources koordinator", job, 0, "kubernetes.io/batch-cpu: 500", "kubernetes.io/batch-cpu 500"},
		"no class":    {"", job, 0, job, "is left as it is: it names no class"},
		"no YAML":     {"", "a: [", 1, "", "-: in the document that begins at line 1: "},
		"no scheme":   {"--resources yarn", job, 2, "", "must be sluice, koordinator or katalyst"},
		"control":     {"", strings.Replace(job, "nightly", `"\e[31m"`, 1), 0, "", "Job \uFFFD[31m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			exit := execute(append([]string{"convert", "-f", "-"}, strings.Fields(test.args)...), strings.NewReader(test.in), &out, &errs)
			if exit != test.exit || !strings.Contains(out.String(), test.out) || !strings.Contains(errs.String(), test.errs) {
				t.Errorf("exit %d\n%s\n%s", exit, &out, &errs)
			}
		})
	}
}
