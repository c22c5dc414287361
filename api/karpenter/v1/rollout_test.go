package v1_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

func TestParseRollout(t *testing.T) {
	custom := karpv1.CanaryDefaults()
	custom.Soak, custom.CanaryPerZone = metav1.Duration{Duration: 5 * time.Minute}, 2
	for _, tt := range []struct {
		text  string
		want  karpv1.Rollout
		field string // of the error; empty for none
	}{
		{"Canary", karpv1.CanaryDefaults(), ""},
		{"Off", karpv1.Rollout{Mode: karpv1.RolloutOff}, ""},
		{`{"mode":"Canary"}`, karpv1.CanaryDefaults(), ""},
		{`{"mode":"Off","soak":"5m"}`, karpv1.Rollout{Mode: karpv1.RolloutOff}, ""},
		{`{"mode":"Canary","soak":"5m","canaryPerZone":2,"waves":"double"}`, custom, ""},
		{"canary", karpv1.Rollout{}, "neither Canary nor Off"},
		{"", karpv1.Rollout{}, "neither Canary nor Off"},
		{`{"soak":"5m"}`, karpv1.Rollout{}, "mode: "},
		{`{"mode":"Canary","soak":"0s"}`, karpv1.Rollout{}, "soak: "},
		{`{"mode":"Canary","soak":"-5m"}`, karpv1.Rollout{}, "soak: "},
		{`{"mode":"Canary","soak":"long"}`, karpv1.Rollout{}, "long"},
		{`{"mode":"Canary","canaryPerZone":0}`, karpv1.Rollout{}, "canaryPerZone: "},
		{`{"mode":"Canary","canaryPerZone":1000}`, karpv1.Rollout{}, "canaryPerZone: "},
		{`{"mode":"Canary","waves":"triple"}`, karpv1.Rollout{}, "waves: "},
		{`{"mode":"Canary","wave":"double"}`, karpv1.Rollout{}, `"wave"`},
	} {
		got, err := karpv1.ParseRollout(tt.text)
		if got != tt.want || (err == nil) != (tt.field == "") || err != nil && !strings.Contains(err.Error(), tt.field) {
			t.Errorf("%s: %+v, %v", tt.text, got, err)
		}
	}
}

func TestRolloutOf(t *testing.T) {
	off, canary := karpv1.Rollout{Mode: karpv1.RolloutOff}, karpv1.CanaryDefaults()
	short := canary
	short.Soak.Duration = 2 * time.Minute
	for _, tt := range []struct {
		name    string
		pool    string
		classes map[string]string
		expire  time.Duration
		want    karpv1.Rollout
		field   string
	}{
		{name: "nothing stated", want: off},
		{name: "on the class", classes: map[string]string{"a": "Canary"}, want: canary},
		{name: "the pool comes first", pool: "Off", classes: map[string]string{"a": "Canary"}, want: off},
		{name: "the pool comes before a class that cannot be read", pool: "Off", classes: map[string]string{"a": "?"}, want: off},
		{
			name: "not readable", pool: "?", classes: map[string]string{"a": "Off"}, want: canary,
			field: "[dovetail.sh/rollout] of NodePool general",
		},
		{name: "not readable on the class", classes: map[string]string{"a": "?"}, want: canary, field: "of EC2NodeClass a"},
		{name: "two classes of one mind", classes: map[string]string{"a": "Canary", "b": `{"mode":"Canary"}`}, want: canary},
		{name: "two classes that differ", classes: map[string]string{"a": "Off", "b": "Canary"}, want: canary, field: "EC2NodeClasses a and b"},
		{name: "a soak shorter than the expiry", pool: "Canary", expire: time.Hour, want: canary},
		{name: "a soak as long as the expiry", pool: `{"mode":"Canary","soak":"1h"}`, expire: time.Hour, want: canary, field: "soak: 1h0m0s"},
		{name: "an expiry shorter than the default", pool: "Canary", expire: 4 * time.Minute, want: short, field: "expireAfter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "general"}}
			pool.Spec.Template.Spec.ExpireAfter = karpv1.Never()
			if tt.pool != "" {
				pool.Annotations = map[string]string{karpv1.AnnotationRollout: tt.pool}
			}
			if tt.expire > 0 {
				pool.Spec.Template.Spec.ExpireAfter = karpv1.After(tt.expire)
			}
			got, err := karpv1.RolloutOf(pool, tt.classes)
			if got != tt.want || (err == nil) != (tt.field == "") || err != nil && !strings.Contains(err.Error(), tt.field) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
