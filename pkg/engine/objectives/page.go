package objectives

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/text/suggest"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// The limits of a page, which a pod writes.
const (
	longestPage = 2 << 20  // bytes
	longestLine = 16 << 10 // bytes
	mostSeries  = 2000     // of the histogram's buckets
	mostNames   = 1000     // of other histograms that an error may suggest
)

// histogramOf reads the objective's histogram from a page in Prometheus' text format: the sum of all series
// that have its labels, in seconds. Lines of other metrics are not parsed.
func histogramOf(page io.Reader, o *workload.Objective) (observe.Histogram, error) {
	lines, err := linesOf(page, o.Metric)
	if err != nil {
		return observe.Histogram{}, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(lines))
	if err != nil {
		return observe.Histogram{}, fmt.Errorf("the histogram %s can't be read: %w", o.Metric, err)
	}
	h, err := sumOf(families[o.Metric].GetMetric(), o)
	if err != nil {
		return observe.Histogram{}, err
	}
	return h, h.Check(o.Bound.Seconds())
}

// linesOf returns the lines of a histogram's buckets, after the line that says what it is.
func linesOf(page io.Reader, metric string) ([]byte, error) {
	limited := &io.LimitedReader{R: page, N: longestPage + 1}
	reader := bufio.NewReaderSize(limited, longestLine)
	kind, bucket := "# TYPE ", []byte(metric+"_bucket{")
	lines := fmt.Appendf(nil, "%s%s histogram\n", kind, metric)
	var series int
	var known bool
	var others []string
	for {
		line, err := reader.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("the page has a line of over %d bytes", longestLine)
		case limited.N <= 0:
			return nil, fmt.Errorf("the page has over %d bytes: serve the histogram on a page of its own", longestPage)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		if name, is := bytes.CutPrefix(line, []byte(kind)); is {
			if name, is := bytes.CutSuffix(bytes.TrimSpace(name), []byte(" histogram")); is && len(others) < mostNames {
				others = append(others, string(name))
				known = known || string(name) == metric
			}
		} else if bytes.HasPrefix(line, bucket) {
			if series++; series > mostSeries {
				return nil, fmt.Errorf("the histogram %s has over %d buckets in all its series: choose some by labels", metric, mostSeries)
			}
			lines = append(append(lines, bytes.TrimRight(line, "\r\n")...), '\n')
		}
		if err != nil {
			break
		}
	}
	if series > 0 {
		return lines, nil
	}
	return nil, missing(metric, known, others)
}

// missing says why a page has no buckets of a histogram.
func missing(metric string, known bool, others []string) error {
	near := suggest.To(metric, others)
	switch {
	case known:
		return fmt.Errorf("the histogram %s has no buckets yet", metric)
	case near != "":
		return fmt.Errorf("the page has no histogram %s; did you mean %s?", metric, near)
	case len(others) == 0:
		return fmt.Errorf("the page has no histogram %s, and no other histogram", metric)
	default:
		return fmt.Errorf("the page has no histogram %s, but %d others, such as %s", metric, len(others), others[0])
	}
}

// sumOf adds up the series that have the objective's labels.
func sumOf(series []*dto.Metric, o *workload.Objective) (observe.Histogram, error) {
	counts, of, n := map[float64]float64{}, map[float64]int{}, 0
	for _, one := range series {
		if !hasLabels(one, o) {
			continue
		}
		n++
		for _, b := range one.GetHistogram().GetBucket() {
			upTo := b.GetUpperBound() * o.Unit.Seconds()
			of[upTo]++
			counts[upTo] += max(float64(b.GetCumulativeCount()), b.GetCumulativeCountFloat())
		}
	}
	if n == 0 {
		return observe.Histogram{}, fmt.Errorf("no series of the histogram %s has the labels %s", o.Metric, labelsText(o))
	}
	var h observe.Histogram
	for _, upTo := range slices.Sorted(maps.Keys(counts)) {
		if of[upTo] != n {
			return observe.Histogram{}, fmt.Errorf("the series of the histogram %s have different buckets: choose some by labels", o.Metric)
		}
		h.UpTo, h.Counts = append(h.UpTo, upTo), append(h.Counts, counts[upTo])
	}
	return h, nil
}

func hasLabels(m *dto.Metric, o *workload.Objective) bool {
	for _, want := range o.Labels {
		if want.Name == "" {
			continue
		}
		value := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == want.Name {
				value = l.GetValue()
			}
		}
		if value != want.Value {
			return false
		}
	}
	return true
}

func labelsText(o *workload.Objective) string {
	var all []string
	for _, l := range o.Labels {
		if l.Name != "" {
			all = append(all, fmt.Sprintf("%s=%q", l.Name, l.Value))
		}
	}
	return "{" + strings.Join(all, ", ") + "}"
}
