package config

// Memory is what is done for memory beside single containers.
type Memory struct {
	GlobalWatermark    Watermark `yaml:"globalWatermark"`
	BEPageCachePercent int       `yaml:"bePageCachePercent"` // of a BE container's memory limit, or of the node's memory where it has none; 0 is no limit
}

// Watermark says whether the kernel begins earlier to free memory in the
// background (vm.min_free_kbytes, vm.watermark_scale_factor).
type Watermark string

// WatermarkAuto raises both values in proportion to the size of the memory, and never lowers
// them.
const (
	WatermarkOff  Watermark = "off"
	WatermarkAuto Watermark = "auto"
)

// UnmarshalText reads "off" or "auto".
func (w *Watermark) UnmarshalText(text []byte) error {
	return choose(w, text, WatermarkOff, WatermarkAuto)
}
