package annotation

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// The limits of objectives. A finer quantile than 0.9999 needs more requests than a pod answers in a
// minute, and batch work is not what makes answers take longer than a minute.
const (
	leastQuantile = 0.5
	usualQuantile = 0.99
	mostQuantile  = 0.9999
	leastLatency  = 100 * time.Microsecond
	mostLatency   = time.Minute
)

// These are the names of metrics and labels in Prometheus' text format, and paths that need no escapes
// in a URL.
var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]{0,199}$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,99}$`)
	pagePath   = regexp.MustCompile(`^/[a-zA-Z0-9/._~-]{0,199}$`)
)

// longestLabel is the longest value of a label in bytes.
const longestLabel = 200

// readObjective reads a mapping like {metric: http_request_duration_seconds, quantile: 0.99, bound: 20ms,
// port: 8080, path: /metrics, labels: {code: "200"}, unit: s}.
func readObjective(node *yaml.Node) (o workload.Objective, err error) {
	o = workload.Objective{Quantile: usualQuantile, Unit: time.Second, Path: "/metrics"}
	err = readMapping(node, []field{
		textField("metric", &o.Metric, metricName, "must be the name of a Prometheus histogram, like http_request_duration_seconds"),
		{"quantile", func(node *yaml.Node) (err error) {
			if o.Quantile, err = strconv.ParseFloat(scalar(node), 64); err != nil || !(o.Quantile >= leastQuantile && o.Quantile <= mostQuantile) {
				return fmt.Errorf("must be a number from %v to %v, like 0.99", leastQuantile, mostQuantile)
			}
			return nil
		}},
		{"bound", func(node *yaml.Node) (err error) {
			if o.Bound, err = time.ParseDuration(scalar(node)); err != nil || o.Bound < leastLatency || o.Bound > mostLatency {
				return fmt.Errorf("must be a time from %s to %s, like 20ms", leastLatency, mostLatency)
			}
			return nil
		}},
		{"port", func(node *yaml.Node) (err error) {
			if o.Port, err = strconv.Atoi(scalar(node)); err != nil || o.Port < 1 || o.Port > 65535 {
				return errors.New("must be a port number, 1 to 65535")
			}
			return nil
		}},
		textField("path", &o.Path, pagePath, "must be the path of a page, like /metrics, without a query"),
		{"labels", func(node *yaml.Node) error { return readLabels(node, &o.Labels) }},
		{"unit", func(node *yaml.Node) error {
			units := map[string]time.Duration{"s": time.Second, "ms": time.Millisecond}
			if o.Unit = units[scalar(node)]; o.Unit == 0 {
				return errors.New("must be s or ms, the unit of the histogram's buckets")
			}
			return nil
		}},
	})
	if err == nil && (o.Metric == "" || o.Bound == 0 || o.Port == 0) {
		err = errors.New("must have metric, bound and port, like {metric: http_request_duration_seconds, bound: 20ms, port: 8080}")
	}
	return o, err
}

// textField reads a text of the given form.
func textField(name string, into *string, form *regexp.Regexp, otherwise string) field {
	return field{name, func(node *yaml.Node) error {
		if *into = scalar(node); !form.MatchString(*into) {
			return errors.New(otherwise)
		}
		return nil
	}}
}

// readLabels reads the labels that a series must have.
func readLabels(node *yaml.Node, into *[4]workload.Label) error {
	if node.Kind != yaml.MappingNode || len(node.Content) > 2*len(into) {
		return fmt.Errorf("must be a mapping of up to %d labels, like {code: \"200\"}", len(into))
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		if !labelName.MatchString(name) || name == "le" {
			return fmt.Errorf("%s can't be a label of the histogram's series", quote(name))
		}
		for _, other := range into {
			if other.Name == name {
				return fmt.Errorf("%s is there twice", quote(name))
			}
		}
		if value.Kind != yaml.ScalarNode || len(value.Value) > longestLabel || strings.ContainsFunc(value.Value, func(r rune) bool { return r < ' ' }) {
			return fmt.Errorf("%s must have a text of up to %d bytes", quote(name), longestLabel)
		}
		into[i/2] = workload.Label{Name: name, Value: value.Value}
	}
	return nil
}
