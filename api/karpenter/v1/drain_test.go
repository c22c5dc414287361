package v1_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestDrainAnnotations(t *testing.T) {
	tests := []struct {
		name, text     string
		pool, workload karpv1.DrainModes
		poolErr, err   string
	}{
		{
			name: "of a pod", text: "Ordered", poolErr: `"Ordered" is none of [SurgeSingletons]`,
			workload: karpv1.DrainModes{karpv1.DrainOrdered},
		},
		{
			name: "of a NodePool", text: "SurgeSingletons", err: `"SurgeSingletons" is none of [Ordered Surge]`,
			pool: karpv1.DrainModes{karpv1.DrainSurgeSingletons},
		},
		{
			name: "two of a pod", text: "Surge, Ordered", poolErr: `"Surge" is none of [SurgeSingletons]`,
			workload: karpv1.DrainModes{karpv1.DrainSurge, karpv1.DrainOrdered},
		},
		{name: "a word that is no mode voids the others", text: "Ordered,Fast", poolErr: `"Ordered" is none`, err: `"Fast" is none`},
		{name: "empty", poolErr: `"" is none`, err: `"" is none`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			annotations := map[string]string{karpv1.AnnotationDrain: tt.text}
			pool := &karpv1.NodePool{}
			pool.Annotations = annotations
			check := func(got, want karpv1.DrainModes, err error, message string) {
				if !slices.Equal(got, want) || (err == nil) != (message == "") || err != nil && !strings.Contains(err.Error(), message) {
					t.Errorf("got %v, %v; want %v, %q", got, err, want, message)
				}
			}
			got, err := pool.Drain()
			check(got, tt.pool, err, tt.poolErr)
			got, err = karpv1.WorkloadDrain(annotations)
			check(got, tt.workload, err, tt.err)
		})
	}
	if got, err := (&karpv1.NodePool{}).Drain(); got != nil || err != nil {
		t.Errorf("without the annotation: %v, %v", got, err)
	}
}

func TestExpectedDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"20m": 20 * time.Minute, "0s": 0, "-1m": 0, "soon": 0} {
		got, err := karpv1.ExpectedDuration(map[string]string{karpv1.AnnotationExpectedDuration: text})
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if got, err := karpv1.ExpectedDuration(nil); got != 0 || err != nil {
		t.Errorf("without the annotation: %v, %v", got, err)
	}
}
