package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Resources that are decoded without the decoder are what it makes of them, and valid.
func TestPlainResourcesAreAsDecoded(t *testing.T) {
	for text, plain := range map[string]bool{
		`{}`:              true,
		`{"requests":{}}`: true,
		`{"requests":{"cpu":"2027m","memory":"11053Mi"}}`:                      true,
		` { "requests" : { "cpu" : " 1 " } , "limits" : {"cpu":"1000m"} } `:    true,
		`{"limits":{"ephemeral-storage":"1e3"},"requests":{"memory":"0.5Gi"}}`: true,
		`{"requests":{"cpu":"2"},"limits":{"memory":"1Gi"}}`:                   true,
		`{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}`:                        false,
		`{"requests":{"cpu":"-1"}}`:                                            false,
		`{"requests":{"cpu":1}}`:                                               false,
		`{"requests":{"cpu":null}}`:                                            false,
		`{"requests":{"cpu":"many"}}`:                                          false,
		`{"requests":{"cpu":""}}`:                                              false,
		`{"requests":{"cpu":"1","cpu":"2"}}`:                                   false,
		`{"requests":{"cpu":"\u0031"}}`:                                        false,
		`{"requests":{"CPU":"1"}}`:                                             false,
		`{"requests":{"nvidia.com/gpu":"1"},"limits":{"nvidia.com/gpu":"1"}}`:  false,
		`{"requests":null}`:                                                    false,
		`{"requests":{},"requests":{}}`:                                        false,
		`{"claims":[{"name":"gpu"}]}`:                                          false,
		`{"Requests":{"cpu":"1"}}`:                                             false,
	} {
		got, ok := plainResources([]byte(text))
		if ok != plain {
			t.Errorf("%s: plain %v, want %v", text, ok, plain)
		}
		if !ok {
			continue
		}
		want, known := strictly[corev1.ResourceRequirements]([]byte(text))
		if diff := cmp.Diff(want, got); !known || diff != "" {
			t.Errorf("%s: decoded otherwise: %s", text, diff)
		}
		if wrong := requirementErrors(*got, field.NewPath("resources")); len(wrong) > 0 {
			t.Errorf("%s: is not valid: %v", text, wrong)
		}
	}
}
