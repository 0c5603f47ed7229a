// Package promql checks with Prometheus' own parser that the metrics in the dashboard, the alerts
// and the documentation exist.
package promql

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"gopkg.in/yaml.v3"
)

const root = "../../"

// exposed returns the labels of each series in a scrape of a full status without names of pods, and of
// sluice-kube, including those that Prometheus adds. The tests of pkg/view/metrics and of
// plugins/sluice-kube compare the files with real expositions.
func exposed(t *testing.T) map[string][]string {
	t.Helper()
	series := map[string][]string{"up": {"job", "instance"}, "process_cpu_seconds_total": {"job", "instance"}}
	file, _, found := strings.Cut(string(readFile(t, "pkg/view/metrics/testdata/metrics.txt")), "# Single containers and pods\n")
	if !found {
		t.Fatal("the file does not end with metrics of containers")
	}
	file += string(readFile(t, "plugins/sluice-kube/testdata/metrics.txt"))
	for _, m := range regexp.MustCompile(`(?m)^(\w+) (\w+) \{(.*?)\} `).FindAllStringSubmatch(file, -1) {
		name, labels := m[1], []string{"job", "instance"}
		if m[3] != "" {
			labels = append(labels, strings.Split(m[3], ",")...)
		}
		if m[2] != "histogram" {
			series[name] = labels
			continue
		}
		series[name+"_bucket"] = append(slices.Clone(labels), "le")
		series[name+"_sum"], series[name+"_count"] = labels, labels
	}
	if len(series) < 80 {
		t.Fatalf("%d series found", len(series))
	}
	return series
}

// problems reports what is wrong with an expression: a syntax error, or names that are not
// exposed. labels are those that its result may have.
func problems(series map[string][]string, text string) (labels, found []string) {
	text = regexp.MustCompile(`\$__(rate_interval|interval|range)\b`).ReplaceAllString(text, "5m")
	expression, err := parser.ParseExpr(text)
	if err != nil {
		return nil, []string{err.Error()}
	}
	var all []string
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		has, known := series[selector.Name]
		if !known {
			found = append(found, "there is no metric "+selector.Name)
		}
		all = append(all, has...)
		for _, m := range selector.LabelMatchers {
			if m.Name != "__name__" && !slices.Contains(has, m.Name) {
				found = append(found, selector.Name+" has no label "+m.Name)
			}
		}
		return nil
	})
	labels = all
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		var named []string
		switch n := node.(type) {
		case *parser.AggregateExpr:
			named = n.Grouping
			if node == parser.Node(expression) && n.Op != parser.TOPK && n.Op != parser.BOTTOMK { // these keep the labels
				labels = n.Grouping
			}
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				named = n.VectorMatching.MatchingLabels
			}
		}
		for _, label := range named {
			if !slices.Contains(all, label) {
				found = append(found, "no metric in it has the label "+label)
			}
		}
		return nil
	})
	return labels, found
}

// templates returns the labels in a legend or an annotation.
func templates(pattern, text string) []string {
	var names []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(root + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// panel is part of a Grafana dashboard.
type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func TestDashboards(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]int{"sluice.json": 50, "fleet.json": 30} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkDashboard(t, "configs/grafana/"+name, least)
		})
	}
}

// checkDashboard checks a dashboard that has at least so many expressions.
func checkDashboard(t *testing.T, name string, least int) {
	t.Helper()
	var board struct {
		Panels     []panel `json:"panels"`
		Templating struct {
			List []struct {
				Name       string `json:"name"`
				Definition string `json:"definition"`
			} `json:"list"`
		} `json:"templating"`
		Annotations struct {
			List []struct {
				Expr       string `json:"expr"`
				TextFormat string `json:"textFormat"`
			} `json:"list"`
		} `json:"annotations"`
	}
	if err := json.Unmarshal(readFile(t, name), &board); err != nil {
		t.Fatal(err)
	}
	series := exposed(t)
	check := func(where, expr, legend string) {
		t.Helper()
		labels, found := problems(series, expr)
		for _, f := range found {
			t.Errorf("%s: %s: %s", where, f, expr)
		}
		for _, label := range templates(`\{\{ *(\w+) *\}\}`, legend) {
			if !slices.Contains(labels, label) {
				t.Errorf("%s: the legend %q names %s, which the result does not have", where, legend, label)
			}
		}
	}
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	expressions := 0
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %s, or beside the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s is empty", p.Title)
		}
		for _, target := range p.Targets {
			expressions++
			check(p.Title, target.Expr, target.LegendFormat)
			if !strings.Contains(target.Expr, `instance=~"$instance"`) {
				t.Errorf("%s is not of the chosen nodes: %s", p.Title, target.Expr)
			}
		}
	}
	if expressions < least {
		t.Errorf("%d expressions found", expressions)
	}
	for _, a := range board.Annotations.List {
		check("annotation", a.Expr, a.TextFormat)
	}
	for _, v := range board.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition); v.Name == "instance" && (m == nil || !slices.Contains(series[m[1]], m[2])) {
			t.Errorf("variable %s: %q", v.Name, v.Definition)
		}
	}
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(readFile(t, "configs/prometheus/alerts.yaml"))))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	series, seen := exposed(t), map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			labels, found := problems(series, r.Expr)
			for _, f := range found {
				t.Errorf("%s: %s", r.Alert, f)
			}
			for _, text := range r.Annotations {
				for _, label := range templates(`\$labels\.(\w+)`, text) {
					if !slices.Contains(labels, label) {
						t.Errorf("%s names the label %s, which its expression does not have", r.Alert, label)
					}
				}
			}
			if seen[r.Alert] || r.Alert == "" || r.Annotations["summary"] == "" || len(r.Annotations["runbook"]) < 60 || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s: an alert has a name of its own, a severity, a summary and a runbook", r.Alert)
			}
			seen[r.Alert] = true
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d alerts found", len(seen))
	}
}

// The expressions in docs/metrics.md are checked as well.
func TestDocsExpressions(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(string(readFile(t, "docs/metrics.md")), "| question | expression |\n")
	series, n := exposed(t), 0
	for line := range strings.Lines(table) {
		m := regexp.MustCompile("\\| `(.*)` \\|$").FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			if n > 0 {
				break
			}
			continue
		}
		n++
		_, found := problems(series, strings.ReplaceAll(m[1], `\|`, "|"))
		for _, f := range found {
			t.Errorf("%s: %s", m[1], f)
		}
	}
	if n < 5 {
		t.Errorf("%d expressions found", n)
	}
}

// The checks above must find each of these.
func TestProblemsAreFound(t *testing.T) {
	t.Parallel()
	series := exposed(t)
	for expr, want := range map[string]string{
		"sluice_nothing":                                              "there is no metric",
		`sluice_pool_cpus{class="LS"}`:                                "has no label class",
		"sum by (kind) (sluice_pool_cpus)":                            "has the label kind",
		"sum(sluice_pool_cpus":                                        "unclosed",
		"rate(sluice_batch_cpu_seconds_total)":                        "range vector",
		"sluice_handler_duration_seconds":                             "there is no metric",
		"sluice_pool_cpus / on (x) up":                                "has the label x",
		"sum(rate(sluice_batch_cpu_seconds_total[$__rate_interval]))": "",
	} {
		_, found := problems(series, expr)
		if (want == "") != (len(found) == 0) || !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("%s: found %q, want %q", expr, found, want)
		}
	}
}

func TestScrapeConfig(t *testing.T) {
	t.Parallel()
	var file struct {
		Scrape []struct {
			Job string `yaml:"job_name"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(readFile(t, "configs/prometheus/scrape.yaml"), &file); err != nil || len(file.Scrape) != 1 || file.Scrape[0].Job != "sluice" {
		t.Errorf("%v %+v", err, file)
	}
}
