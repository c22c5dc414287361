package scripttest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
)

// doPod adds equal pods: pod NAME [xN] ...
func (w *world) doPod(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	count, numbered := 1, false
	if len(l.words) > 0 && strings.HasPrefix(l.words[0], "x") && !strings.Contains(l.words[0], "=") {
		if count, err = number(l.words[0][1:]); err != nil {
			return fmt.Errorf("pod: %w", err)
		}
		l.words, numbered = l.words[1:], true
	}
	at := ""
	for range count {
		own := name
		if numbered {
			own += "-" + strconv.Itoa(w.pods)
		}
		w.pods++
		p := enginetest.Pod(own, enginetest.Labeled("app", name))
		p.CreationTimestamp = metav1.Time{Time: enginetest.Now().Add(time.Duration(w.pods-10000) * time.Second)}
		rest := l // each pod gets its own
		if err := w.podArguments(p, &rest, arguments{"on": func(_, v string) error { at = v; return nil }}); err != nil {
			return err
		}
		w.group[p.UID] = name
		if at == "" {
			w.snap.Pods = append(w.snap.Pods, p)
			continue
		}
		n, err := w.findNode(at)
		if err != nil {
			return fmt.Errorf("pod: on: %w", err)
		}
		n.Pods = append(n.Pods, enginetest.Bound(p, at))
		if n.Deleting {
			w.snap.Pods = append(w.snap.Pods, p)
		}

	}
	return nil
}

// podArguments applies the arguments of a line to a pod.
func (w *world) podArguments(p *corev1.Pod, l *line, more arguments) error {
	requests := corev1.ResourceList{}
	args := amounts(requests, "cpu", "mem", "gpu", "disk")
	selects := func(key string) func(_, v string) error {
		return func(k, v string) error {
			if key != "" {
				k = key
			}
			if x := expression(k, v); len(x.Values) == 1 && x.Operator == corev1.NodeSelectorOpIn {
				enginetest.Selects(x.Key, x.Values[0])(p)
			} else {
				requireLabel(p, x)
			}
			return nil
		}
	}
	for _, key := range []string{"zone", "arch", "capacity", "type"} {
		args[key] = selects(key)
	}
	maps.Copy(args, arguments{
		"select:": selects(""),
		"or:":     func(key, v string) error { enginetest.Needs(expression(key, v))(p); return nil },
		"prefer:": func(key, v string) error {
			weight := int32(100 - len(preferences(p)))
			enginetest.Prefers(weight, expression(key, v))(p)
			return nil
		},
		"-keep": func(_, _ string) error {
			p.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"}
			return nil
		},
		"ends": func(_, v string) error {
			left, err := time.ParseDuration(v)
			p.DeletionTimestamp = &metav1.Time{Time: enginetest.Now().Add(left)}
			return err
		},
		"label:":    func(key, v string) error { enginetest.Labeled(key, v)(p); return nil },
		"request:":  func(key, v string) error { return quantity(requests, key, v) },
		"tolerates": func(_, v string) error { enginetest.Tolerates(v)(p); return nil },
		"port": func(_, v string) error {
			n, err := number(v)
			enginetest.HostPort("", int32(n), corev1.ProtocolTCP)(p)
			return err
		},
		"volume":        func(_, v string) error { enginetest.Claims(v)(p); return nil },
		"spread":        func(_, v string) error { return spread(p, v, corev1.DoNotSchedule) },
		"prefer-spread": func(_, v string) error { return spread(p, v, corev1.ScheduleAnyway) },
		"affinity":      affinityArgument(p, enginetest.Near), "anti-affinity": affinityArgument(p, enginetest.Apart),
		"prefer-affinity":      affinityArgument(p, func(key, app string) func(*corev1.Pod) { return enginetest.PreferNear(1, key, app) }),
		"prefer-anti-affinity": affinityArgument(p, func(key, app string) func(*corev1.Pod) { return enginetest.PreferApart(1, key, app) }),
	})
	maps.Copy(args, more)
	if err := l.take(args); err != nil {
		return err
	}
	p.Spec.Containers[0].Resources.Requests = requests
	return nil
}

func preferences(p *corev1.Pod) []corev1.PreferredSchedulingTerm {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
}

// requireLabel adds an expression to the one term of required node affinity.
func requireLabel(p *corev1.Pod, x corev1.NodeSelectorRequirement) {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil ||
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		enginetest.Needs(x)(p)
		return
	}
	term := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	term.MatchExpressions = append(term.MatchExpressions, x)
}

// affinityArgument parses KEY/APP.
func affinityArgument(p *corev1.Pod, add func(key, app string) func(*corev1.Pod)) func(_, v string) error {
	return func(_, v string) error {
		key, app, err := pair(v, "LABEL/APP, as in zone/web")
		add(label(key), app)(p)
		return err
	}
}

// spread parses KEY/SKEW[/DOMAINS][/taints][/all-nodes] over pods of the same name.
func spread(p *corev1.Pod, v string, how corev1.UnsatisfiableConstraintAction) error {
	parts := strings.Split(v, "/")
	if len(parts) < 2 {
		return fmt.Errorf("expected LABEL/SKEW, as in zone/1, with /MINDOMAINS, /taints or /all-nodes behind, not %q", v)
	}
	skew, err := number(parts[1])
	enginetest.Spread(label(parts[0]), int32(skew), p.Labels["app"], func(c *corev1.TopologySpreadConstraint) {
		c.WhenUnsatisfiable = how
		for _, part := range parts[2:] {
			honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
			switch part {
			case "taints":
				c.NodeTaintsPolicy = &honor
				continue
			case "all-nodes":
				c.NodeAffinityPolicy = &ignore
				continue
			}
			var n int
			if n, err = number(part); err == nil {
				domains := int32(n)
				c.MinDomains = &domains
			}
		}
	})(p)
	return err
}
