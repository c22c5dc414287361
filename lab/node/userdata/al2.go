package userdata

import (
	"bytes"
	"fmt"
	"path"
	"slices"
)

// bootstrapScript is what EKS optimized images of Amazon Linux 2 bring along.
const bootstrapScript = "/etc/eks/bootstrap.sh"

// bootstrapOptions are the script's options, each of which takes a value. Those that parseBootstrap
// does not use have no effect on what the API server or a scheduler can see.
var bootstrapOptions = []string{
	"--apiserver-endpoint", "--b64-cluster-ca", "--kubelet-extra-args", "--dns-cluster-ip", "--use-max-pods", "--local-disks",
	"--service-ipv6-cidr", "--ip-family", "--container-runtime", "--aws-api-retry-attempts", "--docker-config-json",
	"--containerd-config-file", "--pause-container-account", "--pause-container-version", "--enable-docker-bridge",
	"--enable-local-outpost", "--cluster-id", "--mount-bpf-fs",
}

// decodeAL2 runs the shell parts of the user data as cloud-init does, which is to state that it looks
// for calls of the bootstrap script. The last call wins: each one writes the kubelet's files anew.
func decodeAL2(raw []byte) (Config, error) {
	ps, err := parts(raw)
	if err != nil {
		return Config{}, err
	}
	var call command
	for _, p := range ps {
		if !isShell(p) {
			continue
		}
		cmds, err := commands(string(p.body))
		if err != nil {
			return Config{}, fmt.Errorf("user data script: %w", err)
		}
		for _, c := range cmds {
			if i := bootstrapCall(c); i >= 0 {
				call = c[i:]
			}
		}
	}
	if call == nil {
		return Config{}, fmt.Errorf("no shell script in the user data calls %s (found: %s): kubelet was never configured",
			bootstrapScript, mediaTypes(ps))
	}
	return parseBootstrap(call[1:])
}

// isShell reports whether cloud-init runs the part as a script.
func isShell(p part) bool {
	switch p.mediaType {
	case "text/x-shellscript":
		return true
	case "", "text/plain":
		return bytes.HasPrefix(bytes.TrimSpace(p.body), []byte("#!"))
	default:
		return false
	}
}

// bootstrapCall returns the index of the bootstrap script among the words of a command, or -1.
// Interpreters and wrappers in front of it (bash, sudo, time, VAR=x) are allowed.
func bootstrapCall(c command) int {
	for i, w := range c {
		if w == bootstrapScript {
			return i
		}
		switch path.Base(w) {
		case "bash", "sh", "sudo", "exec", "time", "if", "then", "do", "!", "-x", "-e", "-xe", "-ex":
			continue
		}
		if !assignment.MatchString(w) {
			return -1
		}
	}
	return -1
}

// parseBootstrap reads the arguments of the bootstrap script as the script does: what it does not know
// it takes for a positional argument, of which only the first, the cluster's name, counts.
func parseBootstrap(args []string) (Config, error) {
	cfg := Config{UseENIMaxPods: true}
	var names []string
	var encodedCA, extra string
	for i := 0; i < len(args); i++ {
		option := args[i]
		if !slices.Contains(bootstrapOptions, option) {
			names = append(names, option)
			continue
		}
		if i++; i >= len(args) {
			return Config{}, fmt.Errorf("%s: option %s needs a value", bootstrapScript, option)
		}
		switch value := args[i]; option {
		case "--apiserver-endpoint":
			cfg.Endpoint = value
		case "--b64-cluster-ca":
			encodedCA = value
		case "--kubelet-extra-args":
			extra = value
		case "--dns-cluster-ip":
			cfg.Kubelet.ClusterDNS = []string{value}
		case "--use-max-pods":
			cfg.UseENIMaxPods = value == "true"
		case "--local-disks":
			cfg.LocalDisks = value
		case "--service-ipv6-cidr":
			cfg.ServiceCIDR = value
		}
	}
	if len(names) == 0 {
		return Config{}, fmt.Errorf("%s: CLUSTER_NAME is not defined", bootstrapScript)
	}
	cfg.ClusterName = names[0]
	if cfg.Endpoint == "" || encodedCA == "" {
		return Config{}, fmt.Errorf("%s: --apiserver-endpoint and --b64-cluster-ca are needed: "+
			"the simulated instance does not call the EKS API", bootstrapScript)
	}
	var err error
	if cfg.CA, err = decodeCA(encodedCA); err != nil {
		return Config{}, err
	}
	flags, err := words(extra)
	if err != nil {
		return Config{}, fmt.Errorf("%s: --kubelet-extra-args: %w", bootstrapScript, err)
	}
	return cfg, applyFlags(&cfg, flags)
}
