package bin

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-k8s/dovetail/internal/engine/devices"
	"github.com/dovetail-k8s/dovetail/internal/engine/nodepool"
	"github.com/dovetail-k8s/dovetail/internal/engine/plan"
	"github.com/dovetail-k8s/dovetail/internal/engine/podclass"
	"github.com/dovetail-k8s/dovetail/internal/engine/rejection"
)

// allocateDevices tries each option of devices for the pod, until the bin has a type with one.
func (s *Set) allocateDevices(b *Bin, a request, cands *nodepool.Candidates) (Growth, *Refusal) {
	if len(a.c.Devices()) == 0 {
		return s.chooseDomains(b, a, cands)
	}
	options, _ := s.devices.Options(a.c.Devices(), b.index, cands)
	last := &Refusal{code: rejection.Devices, final: !devices.Shared(a.c.Devices())}
	for _, w := range options {
		with := cands.NarrowBy(w.Requirements())
		if with == nil {
			continue
		}
		g, why := s.chooseDomains(b, a, with)
		if why == nil {
			g.devices = &w
			return g, nil
		}
		last = &Refusal{code: why.code}
	}
	return Growth{}, last
}

// withFirstDevices are the candidates of the first device option for a pod of the class in the bin; nil if there is
// none.
func (s *Set) withFirstDevices(b *Bin, c *podclass.Class, cands *nodepool.Candidates) *nodepool.Candidates {
	if len(c.Devices()) == 0 {
		return cands
	}
	options, _ := s.devices.Options(c.Devices(), b.index, cands)
	for _, w := range options {
		if with := cands.NarrowBy(w.Requirements()); with != nil {
			return with
		}
	}
	return nil
}

// takeDevices allocates the devices of a growth.
func (s *Set) takeDevices(b *Bin, pod *corev1.Pod, g Growth) {
	if g.devices == nil {
		return
	}
	s.devices.TakeOption(g.devices)
	b.deviceOptions = append(b.deviceOptions, g.devices)
	b.devices = append(b.devices, plan.DeviceUse{Pod: pod, Claims: g.devices.Claims(), Grants: g.devices.Grants()})
}
