package control

import (
	"fmt"
	"strconv"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// CPUs is an amount of CPU in the configuration, such as "1500m" or "2".
type CPUs workload.MilliCPU

// UnmarshalText parses a Kubernetes quantity and rejects negative ones.
func (c *CPUs) UnmarshalText(text []byte) error {
	amount, err := quantity.Parse(string(text))
	if err != nil {
		return err
	}
	if amount > mostCPUs*1000 {
		return fmt.Errorf("must be 0 to %d CPUs", mostCPUs)
	}
	*c = CPUs(amount)
	return nil
}

// Bytes is an amount of memory in the configuration, such as "2Gi".
type Bytes int64

// UnmarshalText parses a Kubernetes quantity and rejects negative ones.
func (b *Bytes) UnmarshalText(text []byte) error {
	amount, err := quantity.Parse(string(text))
	if err != nil {
		return err
	}
	*b = Bytes(amount.Value())
	return nil
}

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// MemoryText formats an amount with a binary unit: "12.5 GiB", "640 MiB".
func MemoryText(bytes int64) string {
	if bytes > -gib && bytes < gib {
		return strconv.FormatInt(bytes/mib, 10) + " MiB"
	}
	return strconv.FormatFloat(float64(bytes)/float64(gib), 'f', 1, 64) + " GiB"
}

// percentOf returns which percentage of whole part is, rounded to a whole number.
func percentOf(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return part * 100 / whole
}

// bytesPart returns the percentage of whole without overflow.
func bytesPart(whole int64, percent int) int64 {
	return whole/100*int64(percent) + whole%100*int64(percent)/100
}
