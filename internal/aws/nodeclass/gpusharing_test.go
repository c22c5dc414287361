package nodeclass

import (
	"testing"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

func TestGPUSharing(t *testing.T) {
	for _, tt := range []struct{ name, mode, off, on string }{
		{"absent", "", "", ""},
		{"off", "disabled", "", ""},
		{"by memory", "memory", "DRADisabled", ""},
		{"without limit", "unlimited", "DRADisabled", ""},
		{"by number", "4", "DRADisabled", ""},
		{`case 21: annotation nvidia-consumable-capacity: "0"`, "0", "NVIDIAConsumableCapacityInvalid", "NVIDIAConsumableCapacityInvalid"},
		{"negative", "-1", "NVIDIAConsumableCapacityInvalid", "NVIDIAConsumableCapacityInvalid"},
		{"another word", "Memory", "NVIDIAConsumableCapacityInvalid", "NVIDIAConsumableCapacityInvalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			class := &awsv1.EC2NodeClass{}
			if tt.mode != "" {
				class.Annotations = map[string]string{awsv1.AnnotationNVIDIAConsumableCapacity: tt.mode}
			}
			for enabled, want := range map[bool]string{false: tt.off, true: tt.on} {
				if got := CheckGPUSharing(class, enabled); got.Reason != want || (got.Message == "") != (want == "") {
					t.Errorf("with the gate %v: %+v, want reason %q", enabled, got, want)
				}
			}
		})
	}
}
