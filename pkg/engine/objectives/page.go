package objectives

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/observe"
	"github.com/sluice-dev/sluice/pkg/text/suggest"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// The limits of a page, which a pod writes.
const (
	longestPage = 2 << 20  // bytes
	longestLine = 16 << 10 // bytes
	mostSeries  = 2000     // of the histogram's buckets
	mostBuckets = 500      // of one series
	mostNames   = 1000     // of other histograms that an error may suggest
	longestName = 300      // bytes
)

// histogramOf reads the objective's histogram from a page in Prometheus' text format: the sum of all series
// that have its labels, in seconds. Lines of other metrics are not parsed.
func histogramOf(page io.Reader, o *workload.Objective) (observe.Histogram, error) {
	s := sum{objective: o, counts: map[float64]float64{}, of: map[float64]int{}, series: map[uint64]bool{}}
	if err := s.read(page); err != nil {
		return observe.Histogram{}, err
	}
	h, err := s.histogram()
	if err != nil {
		return observe.Histogram{}, err
	}
	return h, h.Check(o.Bound.Seconds())
}

// sum adds up the series that have the objective's labels. The parsers of Prometheus take seconds and
// gigabytes for a page whose lines have many labels.
type sum struct {
	objective *workload.Objective
	counts    map[float64]float64 // by the end of the bucket in seconds
	of        map[float64]int     // number of series that have the bucket
	series    map[uint64]bool     // hashes of the series' labels
}

// read reads the buckets of the page.
func (s *sum) read(page io.Reader) error {
	limited := &io.LimitedReader{R: page, N: longestPage + 1}
	reader := bufio.NewReaderSize(limited, longestLine)
	metric, kind := s.objective.Metric, []byte("# TYPE ")
	bucket := []byte(metric + "_bucket{")
	var buckets int
	var known bool
	var others []string
	for {
		line, err := reader.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("the page has a line of over %d bytes", longestLine)
		case limited.N <= 0:
			return fmt.Errorf("the page has over %d bytes: serve the histogram on a page of its own", longestPage)
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		if name, is := bytes.CutPrefix(line, kind); is {
			if name, is := bytes.CutSuffix(bytes.TrimSpace(name), []byte(" histogram")); is && len(name) <= longestName && len(others) < mostNames {
				others = append(others, string(name))
				known = known || string(name) == metric
			}
		} else if rest, is := bytes.CutPrefix(line, bucket); is {
			if buckets++; buckets > mostSeries {
				return fmt.Errorf("the histogram %s has over %d buckets in all its series: choose some by labels", metric, mostSeries)
			}
			if err := s.add(string(rest)); err != nil {
				return fmt.Errorf("the histogram %s can't be read: bucket %d: %w", metric, buckets, err)
			}
		}
		if err != nil {
			break
		}
	}
	if buckets == 0 {
		return missing(metric, known, others)
	}
	return nil
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

var seed = maphash.MakeSeed()

// add adds a bucket: what follows the brace in a line like `seconds_bucket{code="200",le="0.1"} 7`.
func (s *sum) add(rest string) error {
	var series maphash.Hash
	series.SetSeed(seed)
	var values [len(s.objective.Labels)]string
	var end string
	for {
		rest = strings.TrimLeft(rest, " \t,")
		if after, is := strings.CutPrefix(rest, "}"); is {
			rest = after
			break
		}
		name, after, is := strings.Cut(rest, "=")
		after, quoted := strings.CutPrefix(strings.TrimLeft(after, " \t"), `"`)
		if !is || !quoted {
			return errors.New("its labels have no end")
		}
		value, after, is := unquote(after)
		if !is {
			return errors.New("a label's value has no end")
		}
		rest = after
		if name = strings.TrimSpace(name); name == "le" {
			end = value
			continue
		}
		for _, text := range []string{name, value} {
			series.WriteString(text)
			series.WriteByte(0)
		}
		for i, want := range s.objective.Labels {
			if want.Name == name {
				values[i] = value
			}
		}
	}
	rest, _, _ = strings.Cut(rest, "#") // an exemplar
	fields := strings.Fields(rest)      // the count, and perhaps a timestamp
	if len(fields) == 0 {
		return errors.New("it has no count")
	}
	upTo, err := strconv.ParseFloat(end, 64)
	if err != nil {
		return fmt.Errorf("its end is %q", end)
	}
	count, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return fmt.Errorf("its count is %q", fields[0])
	}
	for i, want := range s.objective.Labels {
		if want.Name != "" && values[i] != want.Value {
			return nil
		}
	}
	upTo /= float64(time.Second / s.objective.Unit)
	s.series[series.Sum64()] = true
	s.counts[upTo] += count
	s.of[upTo]++
	if len(s.counts) > mostBuckets {
		return fmt.Errorf("there are over %d in one series", mostBuckets)
	}
	return nil
}

// unquote returns the text before the next quotation mark, without escapes, and what follows it.
func unquote(text string) (value, after string, is bool) {
	if i := strings.IndexAny(text, `"\`); i < 0 || text[i] == '"' {
		return strings.Cut(text, `"`)
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return out.String(), text[i+1:], true
		case c == '\\' && i+1 < len(text):
			if i++; text[i] == 'n' {
				out.WriteByte('\n')
			} else {
				out.WriteByte(text[i])
			}
		default:
			out.WriteByte(c)
		}
	}
	return "", "", false
}

// histogram returns the sum.
func (s *sum) histogram() (h observe.Histogram, err error) {
	if len(s.series) == 0 {
		return h, fmt.Errorf("no series of the histogram %s has the labels %s", s.objective.Metric, labelsText(s.objective))
	}
	for _, upTo := range slices.Sorted(maps.Keys(s.counts)) {
		if s.of[upTo] != len(s.series) {
			return observe.Histogram{}, fmt.Errorf("the series of the histogram %s have different buckets: choose some by labels", s.objective.Metric)
		}
		h.UpTo, h.Counts = append(h.UpTo, upTo), append(h.Counts, s.counts[upTo])
	}
	return h, nil
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
