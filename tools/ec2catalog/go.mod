module github.com/dovetail-k8s/dovetail/tools/ec2catalog

go 1.26.0
