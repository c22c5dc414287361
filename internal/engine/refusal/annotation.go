package refusal

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
)

// Read reads the history of a pool; an empty one if there is none, or none that can be read.
func Read(pool *karpv1.NodePool) *History {
	h := &History{}
	if json.Unmarshal([]byte(pool.Annotations[karpv1.AnnotationRefusedPods]), h) != nil {
		return &History{}
	}
	for class, r := range h.Classes {
		if r == nil {
			delete(h.Classes, class)
		}
	}
	return h
}

// Write writes the history to the pool, and reports whether the pool has changed.
func (h *History) Write(pool *karpv1.NodePool) (changed bool, err error) {
	before, had := pool.Annotations[karpv1.AnnotationRefusedPods]
	if h.Empty() {
		delete(pool.Annotations, karpv1.AnnotationRefusedPods)
		return had, nil
	}
	text, err := json.Marshal(h)
	if err != nil {
		return false, fmt.Errorf("encode the history of NodePool %s: %w", pool.Name, err)
	}
	metav1.SetMetaDataAnnotation(&pool.ObjectMeta, karpv1.AnnotationRefusedPods, string(text))
	return string(text) != before, nil
}

// Message describes a verdict to the owner of the pods, with what changes it.
func (v Verdict) Message() string {
	if v.Last == nil {
		return ""
	}
	out := fmt.Sprintf("Node %s was launched for pods like %s, is ready, and does not run them: %s. ", v.Last.Node, v.Last.Pod, v.Last.Why)
	launched := fmt.Sprintf("%d nodes were launched in vain", v.Nodes)
	if v.Nodes == 1 {
		launched = "1 node was launched in vain"
	}
	switch {
	case v.State == Held:
		return out + fmt.Sprintf("%s, and no other is launched until the pods, NodePool %s or its EC2NodeClass change, or you run "+
			"`kubectl annotate nodepool %s %s-`", launched, v.Pool, v.Pool, karpv1.AnnotationRefusedPods)
	case !v.Until.IsZero():
		return out + fmt.Sprintf("%s of at most %d; another one is tried after %s", launched, MaxNodes, v.Until.UTC().Format(time.RFC3339))
	}
	return out + fmt.Sprintf("%s of at most %d; one at a time is tried", launched, MaxNodes)
}
