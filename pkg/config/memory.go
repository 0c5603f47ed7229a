package config

// Memory is what is done for memory beside single containers.
type Memory struct {
	GlobalWatermark    Watermark `yaml:"globalWatermark"`    // With auto, background reclaim starts earlier (vm.min_free_kbytes, vm.watermark_scale_factor).
	BEPageCachePercent int       `yaml:"bePageCachePercent"` // Most page cache of BE containers, in percent of their memory limit, or of the node's memory if they have none; 0 is no limit.
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
