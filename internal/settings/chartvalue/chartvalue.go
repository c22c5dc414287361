// Package chartvalue names the value of the Helm chart by which each setting is set.
package chartvalue

import "strings"

// elsewhere are the values of settings that are not under their own name below settings; empty for none.
var elsewhere = map[string]string{
	"log-level": "logLevel", "log-output-paths": "logOutputPaths", "log-error-output-paths": "logErrorOutputPaths",
	"metrics-port": "controller.metrics.port", "health-probe-port": "controller.healthProbe.port",
	"metrics-secure": "controller.metrics.secure", "metrics-cert-dir": "controller.metrics.certDir",
	"console-port": "controller.console.port", "console-cert-dir": "controller.console.certDir",
	"feature-gates": "settings.featureGates", "aws-feature-gates": "settings.awsFeatureGates",
	"memory-limit": "", "cpu-requests": "", // are the container's
	"bind-address":      "", // of a pod: all interfaces
	"recorder-path":     "", // of a pod: in a volume of its own
	"karpenter-service": "", // has no effect
}

// acronyms are words of settings that are not written as others.
var acronyms = map[string]string{"vpc": "VPC", "enis": "ENIs", "qps": "QPS", "dra": "DRA", "ca": "CA"}

// Of is the path of the value of a flag, such as settings.clusterName of cluster-name; empty if the chart has none.
func Of(flag string) string {
	if path, ok := elsewhere[flag]; ok {
		return path
	}
	words := strings.Split(flag, "-")
	for i, w := range words[1:] {
		if upper, ok := acronyms[w]; ok {
			words[i+1] = upper
		} else {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return "settings." + strings.Join(words, "")
}
