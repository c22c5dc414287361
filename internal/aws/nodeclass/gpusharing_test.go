package nodeclass

import (
	"testing"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

func TestGPUSharing(t *testing.T) {
	for _, tt := range []struct{ name, mode, want string }{
		{"absent", "", ""},
		{"off", "disabled", ""},
		{"by memory", "memory", "DRADisabled"},
		{"without limit", "unlimited", "DRADisabled"},
		{"by number", "4", "DRADisabled"},
		{`case 21: annotation nvidia-consumable-capacity: "0"`, "0", "NVIDIAConsumableCapacityInvalid"},
		{"negative", "-1", "NVIDIAConsumableCapacityInvalid"},
		{"another word", "Memory", "NVIDIAConsumableCapacityInvalid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			class := &awsv1.EC2NodeClass{}
			if tt.mode != "" {
				class.Annotations = map[string]string{awsv1.AnnotationNVIDIAConsumableCapacity: tt.mode}
			}
			if got := CheckGPUSharing(class); got.Reason != tt.want || (got.Message == "") != (tt.want == "") {
				t.Errorf("%+v, want reason %q", got, tt.want)
			}
		})
	}
}
