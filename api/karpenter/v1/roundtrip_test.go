package v1_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Whatever a user may write comes back as it was: tools that compare manifests must see no difference.
func TestManifestsComeBackAsTheyWere(t *testing.T) {
	const pool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: a}
spec:
  disruption: {consolidateAfter: %AFTER%, budgets: []}
  template:
    metadata: {labels: {a: b}}
    spec:
      expireAfter: %EXPIRE%
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: a, operator: Gte, values: ["1"], minValues: 2}]
status: {}
`
	tests := []struct{ name, after, expire string }{
		{"never", "Never", "Never"},
		{"hours, not days nor 72h0m0s", "72h", "720h"},
		{"minutes beyond the hour", "90m", "3600s"},
		{"zero", "0s", "0h"},
		{"several units", "1h30m", "1h0m1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var want map[string]any
			if err := yaml.Unmarshal([]byte(replace(pool, "%AFTER%", tt.after, "%EXPIRE%", tt.expire)), &want); err != nil {
				t.Fatal(err)
			}
			var typed karpv1.NodePool
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(want, &typed); err != nil {
				t.Fatal(err)
			}
			if got := throughJSON(t, &typed); !cmp.Equal(want, got) {
				t.Errorf("through JSON (-want +got):\n%s", cmp.Diff(want, got))
			}
			got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			if plain := throughJSON(t, got); !cmp.Equal(want, plain) {
				t.Errorf("without JSON (-want +got):\n%s", cmp.Diff(want, plain))
			}
		})
	}
}

// What a program leaves out is left to the API server's defaults: zero is not Never.
func TestWhatIsNotGivenIsNotWritten(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := karpv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	for _, o := range []runtime.Object{&karpv1.NodePool{}, &karpv1.NodeClaim{}} {
		text, err := runtime.Encode(codecs.LegacyCodec(karpv1.GroupVersion), o)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Spec, Status map[string]any }
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"disruption", "expireAfter", "terminationGracePeriod", "resources"} {
			if value, ok := got.Spec[field]; ok {
				t.Errorf("%T: spec.%s is written as %v", o, field, value)
			}
		}
		if len(got.Status) > 0 {
			t.Errorf("%T: status is written as %v", o, got.Status)
		}
		back, err := runtime.Decode(codecs.UniversalDeserializer(), text)
		if err != nil {
			t.Fatal(err)
		}
		back.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		if diff := cmp.Diff(o, back); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestNillableDuration(t *testing.T) {
	hour := time.Hour
	tests := []struct {
		name, text string
		want       karpv1.NillableDuration
		never      bool
	}{
		{"a span", `"60m"`, karpv1.NillableDuration{Duration: &hour, Spelling: "60m"}, false},
		{"never", `"Never"`, karpv1.Never(), true},
		{"not given", `null`, karpv1.NillableDuration{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got karpv1.NillableDuration
			if err := json.Unmarshal([]byte(tt.text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.IsNever() != tt.never {
				t.Errorf("IsNever = %v", got.IsNever())
			}
			if text, err := json.Marshal(got); err != nil || string(text) != tt.text {
				t.Errorf("written as %s (%v), want %s", text, err, tt.text)
			}
		})
	}
	for _, text := range []string{`"soon"`, `5`, `"never"`, `""`} {
		if err := json.Unmarshal([]byte(text), new(karpv1.NillableDuration)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if got := karpv1.After(90 * time.Minute).String(); got != "1h30m0s" {
		t.Errorf("After(90m) = %s", got)
	}
}

func TestDeepCopiesShareNothing(t *testing.T) {
	pool := &karpv1.NodePool{Spec: karpv1.NodePoolSpec{Template: karpv1.NodeClaimTemplate{
		ObjectMeta: karpv1.ObjectMeta{Labels: map[string]string{"a": "b"}},
		Spec:       karpv1.NodeClaimTemplateSpec{ExpireAfter: karpv1.After(time.Hour), Taints: []corev1.Taint{{Key: "a"}}},
	}}}
	twin := pool.DeepCopy()
	*pool.Spec.Template.Spec.ExpireAfter.Duration = 2 * time.Hour
	pool.Spec.Template.Labels["a"] = "c"
	pool.Spec.Template.Spec.Taints[0].Key = "c"
	if spec := twin.Spec.Template; *spec.Spec.ExpireAfter.Duration != time.Hour || spec.Labels["a"] != "b" || spec.Spec.Taints[0].Key != "a" {
		t.Errorf("the copy changed with the original: %+v", spec)
	}
}
