package network

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Uplinks returns the devices of the default routes in use, which are those of the least metric for each version of
// IP, sorted; none without a default route.
func (h *Host) Uplinks() ([]string, error) {
	var all []string
	for name, parse := range map[string]func(io.Reader) ([]string, error){"net/route": parseRoutes, "net/ipv6_route": parseRoutes6} {
		text, err := os.ReadFile(h.path(h.process + name)) //nolint:gosec // G703: the names are those above
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without that version of IP
		}
		if err != nil {
			return nil, err
		}
		devices, err := parse(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, devices...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Flags of routes, from include/uapi/linux/route.h.
const (
	routeUp     = 0x1
	routeReject = 0x200
)

// parseRoutes reads /proc/net/route: after a line of titles, a line for each route with the device, the
// destination, the gateway, the flags, two counters, the metric, the mask and more; the counters and the metric are decimal
// numbers, the rest is hexadecimal.
func parseRoutes(from io.Reader) (devices []string, err error) {
	lines := bufio.NewScanner(from)
	lines.Scan()
	var least uint64
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 8 {
			return nil, fmt.Errorf("a line of %d fields: %.80q", len(f), lines.Text())
		}
		flags, err := strconv.ParseUint(f[3], 16, 32)
		if err != nil {
			return nil, err
		}
		metric, err := strconv.ParseUint(f[6], 10, 32)
		if err != nil {
			return nil, err
		}
		if f[1] == "00000000" && f[7] == "00000000" && flags&(routeUp|routeReject) == routeUp {
			devices, least = prefer(devices, least, f[0], metric)
		}
	}
	return devices, lines.Err()
}

// parseRoutes6 reads /proc/net/ipv6_route: a line for each route with the destination, its prefix's
// length, the source, its prefix's length, the next hop, the metric, two counters, the flags and the device.
func parseRoutes6(from io.Reader) (devices []string, err error) {
	lines := bufio.NewScanner(from)
	var least uint64
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			return nil, fmt.Errorf("a line of %d fields: %.80q", len(f), lines.Text())
		}
		flags, err := strconv.ParseUint(f[8], 16, 32)
		if err != nil {
			return nil, err
		}
		metric, err := strconv.ParseUint(f[5], 16, 32)
		if err != nil {
			return nil, err
		}
		if strings.Trim(f[0], "0") == "" && f[1] == "00" && flags&(routeUp|routeReject) == routeUp && f[9] != "lo" {
			devices, least = prefer(devices, least, f[9], metric)
		}
	}
	return devices, lines.Err()
}

// prefer adds the device of a default route to those of the least metric.
func prefer(devices []string, least uint64, device string, metric uint64) ([]string, uint64) {
	switch {
	case len(devices) == 0 || metric < least:
		return []string{device}, metric
	case metric > least:
		return devices, least
	}
	return append(devices, device), least
}
