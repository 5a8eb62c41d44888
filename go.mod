module opendilab.org/di-orchestrator

go 1.26.0
