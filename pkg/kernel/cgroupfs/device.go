package cgroupfs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// device identifies a block device by its number.
type device struct{ major, minor uint32 }

func (d device) String() string {
	return strconv.FormatUint(uint64(d.major), 10) + ":" + strconv.FormatUint(uint64(d.minor), 10)
}

func (d device) compare(e device) int {
	return cmp.Or(cmp.Compare(d.major, e.major), cmp.Compare(d.minor, e.minor))
}

func parseDevice(text string) (device, error) {
	major, minor, ok := strings.Cut(text, ":")
	a, errA := strconv.ParseUint(major, 10, 32)
	b, errB := strconv.ParseUint(minor, 10, 32)
	if !ok || errA != nil || errB != nil {
		return device{}, fmt.Errorf("%.40q is no block device: a device is major:minor", text)
	}
	return device{uint32(a), uint32(b)}, nil
}

// byDevice maps block devices to values; it keeps their order.
type byDevice[T comparable] []entry[T]

type entry[T comparable] struct {
	dev   device
	value T
}

// at returns a pointer to a device's value, which it first sets to none if the device has no
// value yet.
func (l *byDevice[T]) at(dev device, none T) *T {
	i, found := slices.BinarySearchFunc(*l, dev, func(e entry[T], d device) int { return e.dev.compare(d) })
	if !found {
		*l = slices.Insert(*l, i, entry[T]{dev, none})
	}
	return &(*l)[i].value
}

// without returns the list without the devices that have the value none.
func (l byDevice[T]) without(none T) byDevice[T] {
	return slices.DeleteFunc(l, func(e entry[T]) bool { return e.value == none })
}

// changes lists the devices whose values differ, with the wanted value; none is the value of a
// device that a list lacks.
func changes[T comparable](have, want byDevice[T], none T) byDevice[T] {
	var out byDevice[T]
	for _, e := range have {
		*out.at(e.dev, none) = none
	}
	for _, e := range want {
		*out.at(e.dev, none) = e.value
	}
	return slices.DeleteFunc(out, func(e entry[T]) bool {
		now := none
		if i := slices.IndexFunc(have, func(h entry[T]) bool { return h.dev == e.dev }); i >= 0 {
			now = have[i].value
		}
		return now == e.value
	})
}
